//! What is behind authentication: takes a request for a file of the page, gives it as the browser can take it; takes a
//! WebSocket or a file that is sent, gives it to who attends to it.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, put},
};

use super::{
    auth::{self, AuthGate, Visitor, refusal},
    client::{self, CloseReason},
    limits,
    page::{Page, PageFile},
    session_registry::SessionRegistry,
    shutdown::Shutdown,
    upload::{self, Uploads},
    user_store::UserStore,
};

/// Where a window talks to its session.
const LIVE: &str = "/live";

/// What requests are answered from.
#[derive(Clone)]
pub struct AppState {
    pub page: Arc<Page>,
    pub registry: Arc<SessionRegistry>,
    pub uploads: Arc<Uploads>,
    pub shutdown: Shutdown,
    /// Where everybody has a token of their own.
    pub user_store: Option<Arc<UserStore>>,
}

/// Every other path is a file of the page, or nothing.
pub fn router(auth: Arc<AuthGate>, behind: AppState) -> Router {
    let sent = put(upload::put).fallback(file);
    let all = Router::new().route(LIVE, get(live)).route(upload::ROUTE, sent).fallback(file).with_state(behind);
    all.layer(middleware::from_fn_with_state(auth, auth::watch))
}

async fn live(
    State(AppState { registry, shutdown, user_store, .. }): State<AppState>,
    Extension(Visitor(who)): Extension<Visitor>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let Ok(upgrade) = upgrade else {
        return refusal(StatusCode::BAD_REQUEST, "Here a page talks to its session, by WebSocket.");
    };
    let user = user_store.zip(who).map(|(user_store, who)| user_store.user_handle(who));
    let upgrade = upgrade
        .max_message_size(limits::MESSAGE_BYTES)
        .max_frame_size(limits::MESSAGE_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(limits::WRITE_BUFFER);
    if let Ok(place) = registry.clients.clone().try_acquire_owned() {
        return upgrade.on_upgrade(move |socket| async move {
            let _place = place;
            client::attend(socket, registry, user, shutdown).await;
        });
    }
    // A page cannot read the answer to a failed upgrade: it is told after it.
    let Ok(place) = registry.turned_away.clone().try_acquire_owned() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "This server has all the windows that it takes.");
    };
    upgrade.on_upgrade(move |socket| async move {
        let _place = place;
        client::turn_away(socket, CloseReason::crowded(registry.bounds.clients)).await;
    })
}

async fn file(State(behind): State<AppState>, uri: Uri, headers: HeaderMap) -> Response {
    // Compared character by character with the names that are there: no path is made of it.
    let Some(file) = uri.path().strip_prefix('/').and_then(|name| behind.page.file(name)) else {
        return refusal(StatusCode::NOT_FOUND, "There is no such file here.");
    };
    give(file, &headers)
}

fn give(file: &PageFile, headers: &HeaderMap) -> Response {
    let gzipped = if takes_gzip(headers) { file.gzipped() } else { None };
    let (body, coding) = match gzipped {
        Some(bytes) => (bytes, "-gzip"),
        None => match file.plain() {
            Some(bytes) => (bytes, ""),
            None => return refusal(StatusCode::INTERNAL_SERVER_ERROR, "This file of the page is damaged."),
        },
    };
    // Two codings of one content are two things to a cache.
    let etag = format!("\"{}{coding}\"", file.etag);
    let mut answer = if knows(headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut answer = body.into_response();
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
        if !coding.is_empty() {
            answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    };
    let headers = answer.headers_mut();
    // Asked about each time: a restarted server may have another page. Unchanged, it costs an empty answer.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, etag);
    }
    answer
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = |part: &str| part.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0);
        named && !parts.any(refused)
    })
}

fn knows(headers: &HeaderMap, etag: &str) -> bool {
    let lines = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|known| known.trim().trim_start_matches("W/") == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_those_who_take_it() {
        let takes = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap());
            takes_gzip(&headers)
        };
        assert!(takes("gzip") && takes("br, GZip;q=0.5") && takes("deflate,gzip, br"));
        assert!(!takes("br") && !takes("gzip;q=0") && !takes("gzip;q=0.0") && !takes("x-gzip") && !takes(""));
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
