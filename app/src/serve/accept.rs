//! Takes connections from a listener, encrypted or plain, gives each to the router; holds no more of them, and none
//! longer, than the limits say, but for one on which a file comes in.

use std::{net::SocketAddr, pin::pin, sync::Arc};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{ending::Ending, gate::Peer, limits, upload::Incoming};

/// Until the end of the server.
pub async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, ending: Ending) {
    let places = Arc::new(Semaphore::new(limits::MAX_CONNECTIONS));
    loop {
        // Those for whom there is no place wait in the system's queue: whoever holds one has to leave soon.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, peer) = tokio::select! {
            () = ending.began() => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // Out of file handles, or a connection that went away: neither is a reason to end.
                Err(_) => {
                    sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (tls, router, ending) = (tls.clone(), router.clone(), ending.clone());
        tokio::spawn(async move {
            let _place = place;
            connect(stream, peer, tls, router, ending).await;
        });
    }
}

async fn connect(stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, router: Router, ending: Ending) {
    // Steps are small and must not wait for each other. Without it they are late, not lost.
    drop(stream.set_nodelay(true));
    match tls {
        None => converse(stream, peer, router, ending).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(limits::HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                converse(stream, peer, router, ending).await;
            }
        }
    }
}

/// Requests of one connection, until it ends or becomes a WebSocket.
async fn converse<S>(stream: S, peer: SocketAddr, router: Router, ending: Ending)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let incoming = Incoming::default();
    let told = router.layer(Extension(Peer(peer))).layer(Extension(incoming.clone()));
    let service = TowerToHyperService::new(told);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIMEOUT)
        .max_buf_size(limits::HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    // What goes wrong here went wrong at the other end, which knows.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = incoming.outlasted(limits::HTTP_LIFETIME) => {}
        () = ending.began() => {
            connection.as_mut().graceful_shutdown();
            drop(timeout(limits::FAREWELL, connection).await);
        }
    }
}
