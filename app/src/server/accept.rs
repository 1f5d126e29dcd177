//! Takes connections from a listener, encrypted or plain, gives each to the router; holds no more of them, and none
//! longer, than the limits say, but for one on which a file comes in. Where all places are taken, who asks for nothing
//! makes way for whoever comes.

mod idle_connections;

use std::{net::SocketAddr, pin::pin, sync::Arc};

use axum::{Extension, Router};
use hyper::{
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use self::idle_connections::{Caller, IdleConnections};
use super::{auth::Peer, limits, shutdown::Shutdown, upload::Incoming};

/// Until the end of the server.
pub async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, shutdown: Shutdown) {
    let places = Arc::new(Semaphore::new(limits::MAX_CONNECTIONS));
    let idle = Arc::new(IdleConnections::default());
    loop {
        let (stream, peer) = tokio::select! {
            () = shutdown.began() => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // Out of file handles, or a connection that went away: neither is a reason to end.
                Err(_) => {
                    sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let place = tokio::select! {
            () = shutdown.began() => return,
            place = place(&places, &idle) => place,
        };
        let Some(place) = place else { return };
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        let caller = Arc::new(Caller::new(idle.clone(), peer.ip()));
        tokio::spawn(async move {
            let _place = place;
            let leave = caller.clone();
            tokio::select! {
                () = connect(stream, peer, tls, router, shutdown, caller) => {}
                () = leave.sent_away() => {}
            }
        });
    }
}

/// Those for whom there is none wait in the system's queue, and somebody who asks for nothing leaves.
async fn place(places: &Arc<Semaphore>, idle: &IdleConnections) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return Some(place);
    }
    loop {
        idle.send_one_away();
        if let Ok(place) = timeout(limits::MAKES_WAY, places.clone().acquire_owned()).await {
            return place.ok();
        }
    }
}

async fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
    shutdown: Shutdown,
    caller: Arc<Caller>,
) {
    // Steps are small and must not wait for each other. Without it they are late, not lost.
    drop(stream.set_nodelay(true));
    match tls {
        None => converse(stream, peer, router, shutdown, caller).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(limits::HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                converse(stream, peer, router, shutdown, caller).await;
            }
        }
    }
}

/// Requests of one connection, until it ends or becomes a WebSocket.
async fn converse<S>(stream: S, peer: SocketAddr, router: Router, shutdown: Shutdown, caller: Arc<Caller>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let incoming = Incoming::default();
    let told = router.layer(Extension(Peer(peer))).layer(Extension(incoming.clone()));
    let answering = TowerToHyperService::new(told);
    let service = service_fn(move |request| {
        let (answer, caller) = (answering.call(request), caller.clone());
        async move {
            let _served = caller.is_served();
            answer.await
        }
    });
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
        () = shutdown.began() => {
            connection.as_mut().graceful_shutdown();
            drop(timeout(limits::FAREWELL, connection).await);
        }
    }
}
