//! Connections to a served session: takes its address, gives WebSockets as a browser's page would open them. What takes
//! time is on a thread of its own, which ends with its socket.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use futures_util::{SinkExt as _, StreamExt as _};
use loka_core::session::shared::MAX_TO_CLIENT;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error as WsError, Message,
        client::IntoClientRequest as _,
        http::{HeaderValue, Response, header},
        protocol::WebSocketConfig,
    },
};

use super::served::Served;
use crate::{
    executor::Wake,
    link::{Network, Socket, SocketNews},
};

/// For each step of the way in.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of an answer to the link's token: a head with a cookie.
const ANSWER_BYTES: usize = 64 << 10;
/// Characters of a reason that a server gives.
const REASON: usize = 200;

pub struct Connector {
    to: Arc<Served>,
    tls: Option<Arc<ClientConfig>>,
    wake: Wake,
    began: Instant,
}

impl Connector {
    /// `certificate`: PEM, of the authority that the server's own was signed by; without it those that this machine
    /// trusts.
    pub fn new(to: Served, certificate: Option<&[u8]>, wake: Wake) -> Result<Self, String> {
        let tls = to.secure.then(|| trusting(certificate)).transpose()?;
        Ok(Self { to: Arc::new(to), tls, wake, began: Instant::now() })
    }
}

fn trusting(certificate: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match certificate {
        Some(pem) => {
            for of in CertificateDer::pem_slice_iter(pem) {
                let of = of.map_err(|error| error.to_string())?;
                roots.add(of).map_err(|error| error.to_string())?;
            }
        }
        // Some of a machine's certificates are odd: the rest counts.
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    if roots.is_empty() {
        return Err("there is no certificate to trust".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl Network for Connector {
    fn connect(&mut self) -> Result<Box<dyn Socket>, String> {
        let (outgoing, out) = unbounded_channel();
        let (news, incoming) = mpsc::channel();
        let (to, tls, wake) = (self.to.clone(), self.tls.clone(), self.wake.clone());
        let thread = std::thread::Builder::new().name("loka-connect".to_owned());
        let talk = move || {
            let told = NewsSender { news, wake };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(talk(&to, tls, out, &told)),
                Err(error) => told.tell(SocketNews::Failed { why: error.to_string(), again: true }),
            }
        };
        thread.spawn(talk).map_err(|error| format!("no thread could be started: {error}"))?;
        Ok(Box::new(ThreadSocket { outgoing, incoming }))
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

/// Dropped, it ends its thread.
struct ThreadSocket {
    outgoing: UnboundedSender<Vec<u8>>,
    incoming: mpsc::Receiver<SocketNews>,
}

impl Socket for ThreadSocket {
    fn send(&mut self, bytes: &[u8]) {
        // Closed: its end is on its way.
        drop(self.outgoing.send(bytes.to_vec()));
    }

    fn poll(&mut self) -> Option<SocketNews> {
        self.incoming.try_recv().ok()
    }
}

struct NewsSender {
    news: mpsc::Sender<SocketNews>,
    wake: Wake,
}

impl NewsSender {
    fn tell(&self, news: SocketNews) {
        drop(self.news.send(news));
        (self.wake)();
    }
}

/// Why there is no connection.
struct NoWay {
    why: String,
    again: bool,
}

impl NoWay {
    fn later(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: true }
    }

    fn never(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: false }
    }
}

/// Either kind of stream.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Transport for S {}

async fn talk(to: &Served, tls: Option<Arc<ClientConfig>>, mut out: UnboundedReceiver<Vec<u8>>, told: &NewsSender) {
    let socket = match come_in(to, tls).await {
        Ok(socket) => socket,
        Err(NoWay { why, again }) => return told.tell(SocketNews::Failed { why, again }),
    };
    told.tell(SocketNews::Opened);
    let (mut sink, mut stream) = socket.split();
    loop {
        tokio::select! {
            sent = out.recv() => match sent {
                Some(bytes) => if sink.send(Message::Binary(bytes.into())).await.is_err() { break },
                // Nobody listens here any longer.
                None => return drop(sink.close().await),
            },
            heard = stream.next() => match heard {
                Some(Ok(Message::Binary(bytes))) => told.tell(SocketNews::Message(bytes.to_vec())),
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    told.tell(SocketNews::Closed);
}

async fn come_in(to: &Served, tls: Option<Arc<ClientConfig>>) -> Result<WebSocketStream<Box<dyn Transport>>, NoWay> {
    let cookie = match &to.token {
        Some(token) => Some(cookie(to, tls.clone(), token).await?),
        None => None,
    };
    let scheme = if to.secure { "wss" } else { "ws" };
    let mut request = format!("{scheme}://{}/live", to.authority)
        .into_client_request()
        .map_err(|error| NoWay::never(error.to_string()))?;
    let mut put = |name, value: &str| {
        let value = HeaderValue::from_str(value).map_err(|_| NoWay::never("the address cannot be in a request"))?;
        request.headers_mut().insert(name, value);
        Ok::<_, NoWay>(())
    };
    put(header::ORIGIN, &to.address())?;
    if let Some(cookie) = &cookie {
        put(header::COOKIE, cookie)?;
    }
    let stream = stream(to, tls).await?;
    let bounds = WebSocketConfig::default().max_message_size(Some(MAX_TO_CLIENT)).max_frame_size(Some(MAX_TO_CLIENT));
    match in_time(client_async_with_config(request, stream, Some(bounds))).await? {
        Ok((socket, _)) => Ok(socket),
        Err(WsError::Http(answer)) => Err(refused(to, &answer)),
        Err(error) => Err(NoWay::later(format!("no workbench answers there ({error})"))),
    }
}

fn refused(to: &Served, answer: &Response<Option<Vec<u8>>>) -> NoWay {
    let text = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    of_status(to, answer.status().as_u16(), &text)
}

fn of_status(to: &Served, status: u16, text: &str) -> NoWay {
    let said: String = text.lines().next().unwrap_or_default().chars().take(REASON).collect();
    let said = if said.trim().is_empty() { format!("the server answers {status}") } else { said };
    let again = status == 429 || status >= 500;
    let hint = match (status, &to.token) {
        (401 | 403, None) => " Give the token of its link by --token-file.",
        _ => "",
    };
    NoWay { why: format!("{said}{hint}"), again }
}

/// What a browser that opened the link would have from then on.
async fn cookie(to: &Served, tls: Option<Arc<ClientConfig>>, token: &str) -> Result<String, NoWay> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-._~".contains(character);
    if !token.chars().all(plain) {
        return Err(NoWay::never("this is no token: it has characters of A-Z a-z 0-9 - . _ ~"));
    }
    let mut stream = stream(to, tls).await?;
    let request = format!("GET /?token={token} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", to.authority);
    let ask = async {
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES as u64).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = in_time(ask).await?.map_err(|error| NoWay::later(error.to_string()))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let status: u16 = status.ok_or_else(|| NoWay::never("what answers there is no web server"))?;
    let cookies = lines.filter_map(|line| line.split_once(':'));
    let mut cookies = cookies.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    match cookies.next() {
        Some((_, value)) => Ok(value.split(';').next().unwrap_or_default().trim().to_owned()),
        // A server that asks for no token gives none.
        None if (200..400).contains(&status) => Ok(String::new()),
        None => Err(of_status(to, status, body)),
    }
}

async fn stream(to: &Served, tls: Option<Arc<ClientConfig>>) -> Result<Box<dyn Transport>, NoWay> {
    let reached = in_time(TcpStream::connect((to.host.as_str(), to.port))).await?;
    let stream =
        reached.map_err(|error| NoWay::later(format!("{}: {}", crate::files::reason(&error), to.address())))?;
    // Without it commands are late, not lost.
    drop(stream.set_nodelay(true));
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(to.host.clone());
    let name = name.map_err(|_| NoWay::never(format!("no name for a certificate: {}", to.host)))?;
    let met = in_time(TlsConnector::from(tls).connect(name, stream)).await?;
    met.map(|stream| Box::new(stream) as Box<dyn Transport>)
        .map_err(|error| NoWay::never(format!("{error}: {}", to.address())))
}

async fn in_time<T>(what: impl Future<Output = T>) -> Result<T, NoWay> {
    timeout(PATIENCE, what).await.map_err(|_| NoWay::later("it does not answer"))
}
