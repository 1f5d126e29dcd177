//! Stands before every request: takes it, turns away what may not come in, and puts the same strict headers on
//! every answer.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use axum::{
    Extension,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{self, HeaderName},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    access::{Authenticator, DoorStanding, Key, Names},
    limits,
    token::TokenDigest,
    upload,
};

/// Where the other end of a connection is.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Who asks, where there is a list of people: goes along with a request that passed.
#[derive(Clone, Copy, Debug)]
pub struct Visitor(pub Option<TokenDigest>);

/// What it decides by.
#[derive(Debug)]
pub struct AuthGate {
    pub names: Names,
    pub authenticator: Authenticator,
    /// Of this port: two servers of one machine do not throw out each other's.
    pub cookie: String,
    /// We speak TLS ourselves.
    pub secure: bool,
    /// A proxy before us says from where a request comes.
    pub trusts_forwarded: bool,
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The name in the link's query.
pub const TOKEN: &str = "token";

/// A request that passed, or the answer that turns it away; then the headers.
pub async fn watch(
    State(auth): State<Arc<AuthGate>>,
    Extension(Peer(peer)): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let host = host_of(request.headers(), request.uri()).map(str::to_owned);
    let mut answer = match auth.admit(&request, host.as_deref(), peer) {
        Admission::Pass(visitor) => {
            request.extensions_mut().insert(visitor);
            next.run(request).await
        }
        Admission::Refuse(status, line) => refusal(status, &line),
        Admission::Later(status, line) => {
            tokio::time::sleep(limits::WRONG_DELAY).await;
            refusal(status, &line)
        }
        Admission::GiveCookie(cookie) => by_link(request.uri(), &cookie),
    };
    put_headers(answer.headers_mut(), host.as_deref().filter(|host| auth.names.knows(host)));
    answer
}

enum Admission {
    Pass(Visitor),
    Refuse(StatusCode, String),
    /// After a while: guessing is slow.
    Later(StatusCode, String),
    /// The value of `Set-Cookie`.
    GiveCookie(HeaderValue),
}

const NO_TOKEN: &str = "This workbench asks for a token.\n\nOpen the link that `loka serve` printed when it was \
                        started; it holds the token, and this browser keeps it as a cookie from then on.";
const WRONG_TOKEN: &str = "This token is not (or no longer) right.\n\nOpen the link that `loka serve` printed when \
                           it was started last.";
const NO_OWN_TOKEN: &str = "This workbench asks who you are.\n\nOpen the link that was made for you; it holds your \
                            token, and this browser keeps it as a cookie from then on. Whoever runs this server \
                            makes links with `loka user add`.";
const WRONG_OWN_TOKEN: &str = "This token is not (or no longer) that of anybody here.\n\nOpen the link that was made for \
                               you last, or ask whoever runs this server for one.";
const TOO_MANY: &str = "Too many wrong tokens came from this address.\n\nWait a few seconds, then open the link \
                        that `loka serve` printed.";
const UNKNOWN_NAME: &str = "This server is not known by that name.\n\nIf it is right, start it with `loka serve \
                            --allow-host NAME`.";
const FOREIGN: &str = "Only the page that this server gave may do this.";

impl AuthGate {
    /// From where a request comes, for counting what is wrong. Of a proxy that is trusted the last address that it was
    /// told of: those before it are whatever a client wrote.
    fn from(&self, headers: &HeaderMap, peer: SocketAddr) -> IpAddr {
        let lines = || headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok());
        let last = || lines().next_back()?.rsplit(',').next()?.trim().parse().ok();
        self.trusts_forwarded.then(last).flatten().unwrap_or(peer.ip())
    }

    fn admit(&self, request: &Request, host: Option<&str>, peer: SocketAddr) -> Admission {
        let refuse = |status, line: &str| Admission::Refuse(status, line.to_owned());
        let Some(host) = host.filter(|host| self.names.knows(host)) else {
            return refuse(StatusCode::FORBIDDEN, UNKNOWN_NAME);
        };
        let (uri, headers) = (request.uri(), request.headers());
        let link = token_in(uri.query().unwrap_or_default());
        let [no_token, wrong_token] = match self.authenticator.key {
            Key::Own(_) => [NO_OWN_TOKEN, WRONG_OWN_TOKEN],
            Key::None | Key::Shared(_) => [NO_TOKEN, WRONG_TOKEN],
        };
        let who = match self.authenticator.standing(
            self.from(headers, peer),
            link,
            &cookies(headers, &self.cookie),
            Instant::now(),
        ) {
            DoorStanding::Welcome(who) => Visitor(who),
            DoorStanding::ByLink(value) => {
                let failed = || refuse(StatusCode::INTERNAL_SERVER_ERROR, "The cookie could not be written.");
                return self.cookie(&value).map_or_else(failed, Admission::GiveCookie);
            }
            DoorStanding::Stranger => return refuse(StatusCode::UNAUTHORIZED, no_token),
            DoorStanding::Wrong => return Admission::Later(StatusCode::UNAUTHORIZED, wrong_token.to_owned()),
            DoorStanding::TooMany => return Admission::Later(StatusCode::TOO_MANY_REQUESTS, TOO_MANY.to_owned()),
        };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if (!reads || headers.contains_key(header::UPGRADE)) && !self.is_own_page(headers, host) {
            return refuse(StatusCode::FORBIDDEN, FOREIGN);
        }
        let sends_file = *request.method() == Method::PUT && uri.path().starts_with(upload::FILES);
        if !reads && !sends_file {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "Pages are read here, and nothing else.");
        }
        Admission::Pass(who)
    }

    /// A browser names the page that asks; whatever does not is no page of ours.
    fn is_own_page(&self, headers: &HeaderMap, host: &str) -> bool {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let origin = origins.next().and_then(|origin| origin.to_str().ok());
        origins.next().is_none() && origin.is_some_and(|origin| self.names.is_own(origin, host, self.secure))
    }

    fn cookie(&self, value: &str) -> Option<HeaderValue> {
        let secure = if self.secure { "; Secure" } else { "" };
        // Lax, not Strict: a link to a view, clicked in a mail or a chat, must open. Reading changes nothing here, and
        // a WebSocket of another site has neither the cookie nor the right origin.
        let text = format!("{}={value}; Path=/; HttpOnly; SameSite=Lax{secure}", self.cookie);
        let mut cookie = HeaderValue::try_from(text).ok()?;
        cookie.set_sensitive(true);
        Some(cookie)
    }
}

/// The one name that the request asks for: two, or one in the address that is another, are a trick.
fn host_of<'a>(headers: &'a HeaderMap, uri: &Uri) -> Option<&'a str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    let alone = hosts.next().is_none() && uri.authority().is_none_or(|of| of.as_str() == host);
    alone.then_some(host)
}

/// The values of all cookies of that name.
fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    // A browser has one, or a few of other paths; more are no browser's.
    pairs.filter(|(of, _)| *of == name).map(|(_, value)| value).take(4).collect()
}

fn token_in(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix(TOKEN)?.strip_prefix('='))
}

/// To the same address without the token; what follows `#` the browser keeps by itself.
fn by_link(uri: &Uri, cookie: &HeaderValue) -> Response {
    let is_token = |pair: &&str| pair.split('=').next() == Some(TOKEN);
    let rest: Vec<&str> = uri.query().unwrap_or_default().split('&').filter(|pair| !is_token(pair)).collect();
    let rest = rest.join("&");
    let to = if rest.is_empty() { "/".to_owned() } else { format!("/?{rest}") };
    let Ok(to) = HeaderValue::try_from(to) else {
        return refusal(StatusCode::BAD_REQUEST, "This address cannot be read.");
    };
    let headers = [(header::LOCATION, to), (header::SET_COOKIE, cookie.clone()), (header::CACHE_CONTROL, NO_STORE)];
    (StatusCode::SEE_OTHER, headers).into_response()
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A page of plain text.
pub fn refusal(status: StatusCode, text: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CACHE_CONTROL, NO_STORE),
    ];
    (status, headers, format!("{text}\n")).into_response()
}

const STRICT: [(HeaderName, HeaderValue); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Scripts and WebAssembly of our own, and nothing of anyone else.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
                      img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; connect-src 'self'";

fn put_headers(headers: &mut HeaderMap, host: Option<&str>) {
    for (name, value) in STRICT {
        headers.insert(name, value);
    }
    // Older browsers do not count a WebSocket of the same host among 'self'. Characters of a known name cannot end the
    // directive.
    let sockets = host.map(|host| format!(" ws://{host} wss://{host}")).unwrap_or_default();
    let policy = HeaderValue::try_from(format!("{POLICY}{sockets}"));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.unwrap_or(HeaderValue::from_static(POLICY)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn one_host_and_no_other_in_the_address() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let one = headers(&[(header::HOST, "localhost:1")]);
        assert_eq!(host_of(&one, &uri("/")), Some("localhost:1"));
        assert_eq!(host_of(&one, &uri("http://localhost:1/")), Some("localhost:1"));
        assert_eq!(host_of(&one, &uri("http://evil.example/")), None);
        assert_eq!(host_of(&HeaderMap::new(), &uri("/")), None);
        let mut two = one.clone();
        two.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert_eq!(host_of(&two, &uri("/")), None);
    }

    #[test]
    fn cookies_and_tokens_are_found_among_others() {
        let lines = headers(&[(header::COOKIE, "a=b; loka-1=x; loka-12=z;loka-1=y")]);
        assert_eq!(cookies(&lines, "loka-1"), ["x", "y"]);
        assert_eq!(token_in("a=b&token=x&c"), Some("x"));
        assert_eq!(token_in("tokens=x&atoken=y"), None);
    }

    #[test]
    fn a_trusted_proxy_says_from_where() {
        let auth = |trusts_forwarded| AuthGate {
            names: Names::new(([127, 0, 0, 1], 1).into(), &[]),
            authenticator: Authenticator::new(Key::None),
            cookie: String::new(),
            secure: false,
            trusts_forwarded,
        };
        let peer: SocketAddr = ([127, 0, 0, 1], 9).into();
        let told = |lines: &[&str]| headers(&lines.iter().map(|line| (FORWARDED_FOR, *line)).collect::<Vec<_>>());
        let from = |lines: &[&str]| auth(true).from(&told(lines), peer).to_string();
        assert_eq!(from(&["10.0.0.1"]), "10.0.0.1");
        assert_eq!(
            from(&["6.6.6.6, 10.0.0.2", "7.7.7.7, 2001:db8::1"]),
            "2001:db8::1",
            "a client writes what is before it"
        );
        assert_eq!(from(&["nonsense"]), "127.0.0.1");
        assert_eq!(from(&[]), "127.0.0.1");
        assert_eq!(auth(false).from(&told(&["10.0.0.1"]), peer).to_string(), "127.0.0.1", "unless it is trusted");
    }

    #[test]
    fn the_link_loses_its_token_and_nothing_else() {
        let to = |uri: &str| {
            let answer = by_link(&uri.parse().unwrap(), &HeaderValue::from_static("c"));
            answer.headers()[header::LOCATION].to_str().unwrap().to_owned()
        };
        assert_eq!(to("/?token=x"), "/");
        assert_eq!(to("/?site=a%20b&token=x&view=plan&token=y"), "/?site=a%20b&view=plan");
        assert_eq!(to("//evil.example/?token=x&a"), "/?a", "never to another host");
    }
}
