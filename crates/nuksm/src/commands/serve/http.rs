// SPDX-License-Identifier: GPL-2.0-only
//! Answering over HTTP.

use super::collector::Page;
use anyhow::{Result, anyhow};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Response, Server};

/// Prometheus' text format, as every version of it reads.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Takes the port.
pub fn bind(listen: SocketAddr) -> Result<Arc<Server>> {
    let server = Server::http(listen).map_err(|error| {
        anyhow!(
            "cannot listen on {listen}: {error}; another program may hold the port: choose one by --listen"
        )
    })?;
    Ok(Arc::new(server))
}

/// Answers until the server is unblocked.
pub fn serve(server: Arc<Server>, page: Page) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            let page = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (status, kind, body) = answer(request.method(), request.url(), page);
            let mut response = Response::from_string(body).with_status_code(status);
            if let Ok(header) = Header::from_bytes("Content-Type", kind) {
                response.add_header(header);
            }
            // Whoever asked may be gone.
            let _ = request.respond(response);
        }
    })
}

/// Status, content type and body.
fn answer(method: &Method, url: &str, page: Result<String, String>) -> (u16, &'static str, String) {
    if !matches!(method, Method::Get | Method::Head) {
        return (405, TEXT, "only GET and HEAD are answered\n".into());
    }
    match (url.split('?').next().unwrap_or_default(), page) {
        ("/metrics", Ok(text)) => (200, METRICS, text),
        ("/healthz", Ok(_)) => (200, TEXT, "ok\n".into()),
        ("/metrics" | "/healthz", Err(why)) => (503, TEXT, format!("{why}\n")),
        _ => (404, TEXT, "there are /metrics and /healthz\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_answer() {
        let get = |url: &str, page: Result<String, String>| {
            let (status, _, body) = answer(&Method::Get, url, page);
            (status, body)
        };
        let page = || Ok("nuksm_x 1\n".to_owned());
        assert_eq!(get("/metrics?x=1", page()), (200, "nuksm_x 1\n".into()));
        assert_eq!(get("/healthz", page()), (200, "ok\n".into()));
        assert_eq!(get("/", page()).0, 404);
        let failed = || Err("cannot read x".to_owned());
        assert_eq!(get("/metrics", failed()), (503, "cannot read x\n".into()));
        assert_eq!(get("/healthz", failed()).0, 503);
        assert_eq!(answer(&Method::Post, "/metrics", page()).0, 405);
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_that_says_what_to_do() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = first.server_addr().to_ip().unwrap();
        let message = bind(taken).err().unwrap().to_string();
        assert!(message.contains(&taken.to_string()) && message.contains("--listen"), "{message}");
    }
}
