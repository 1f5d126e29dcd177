//! What is behind the gate: takes a request for a file of the page, gives it as the browser can take it.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse, Response},
};

use super::{
    gate::{self, Gate, refusal},
    page::{Page, PageFile},
};

/// Every path is a file of the page, or nothing.
pub fn router(gate: Arc<Gate>, page: Arc<Page>) -> Router {
    Router::new().fallback(file).with_state(page).layer(middleware::from_fn_with_state(gate, gate::watch))
}

async fn file(State(page): State<Arc<Page>>, uri: Uri, headers: HeaderMap) -> Response {
    // Compared letter by letter with the names that are there: no path is made of it.
    let Some(file) = uri.path().strip_prefix('/').and_then(|name| page.file(name)) else {
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
