// SPDX-License-Identifier: GPL-2.0-only
//! Answering over HTTP: one request per connection, and limits to all that a client
//! could take, so that none keeps another from its answer.

use super::collector::Page;
use super::health::Health;
use crate::shared::config::Listen;
use anyhow::{Context, Result, anyhow, bail};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use log::{debug, info, warn};
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

/// Prometheus' text format, as every version of it reads.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A connection's time from beginning to end: for a request to come, and for its
/// answer to be taken. A scrape takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time; for one more, the oldest is closed.
const CONNECTIONS: usize = 256;
/// Bytes of a request's head: the least that hyper can be told.
const HEAD: usize = 8 << 10;
/// Before another try, when a connection cannot be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// What a request is answered from.
#[derive(Debug, Clone)]
pub struct Source {
    /// The metrics.
    pub page: Page,
    /// What works.
    pub health: Arc<Health>,
}

/// Takes the port, on each address that a name stands for and this machine has.
pub fn bind(listen: &Listen) -> Result<Vec<TcpListener>> {
    let addresses = listen.addresses().with_context(|| format!("cannot listen on {listen}: no such host"))?;
    bind_to(listen, addresses)
}

fn bind_to(listen: &Listen, addresses: Vec<SocketAddr>) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let mut refusal = None;
    // A name may stand for one of them twice: as many lines as /etc/hosts has.
    for address in BTreeSet::from_iter(addresses) {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => refusal = Some(error),
            Err(error) => bail!(
                "cannot listen on {address}: {error}; another program may hold the port: choose one by --listen"
            ),
        }
    }
    if listeners.is_empty() {
        let why = refusal.map_or_else(|| "it has no address".to_owned(), |error| error.to_string());
        bail!("cannot listen on {listen}: {why}; choose an address of this machine by --listen");
    }
    Ok(listeners)
}

/// The thread that answers.
#[derive(Debug)]
pub struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl Server {
    /// Starts answering; should that ever end by itself, `failed` is called.
    pub fn start(
        listeners: Vec<TcpListener>,
        source: Source,
        failed: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let result = runtime.block_on(serve(listeners, source, stopped));
            if result.is_err() {
                failed();
            }
            result
        });
        Ok(Self { stop, thread })
    }

    /// Answers nobody any more, and waits for nobody.
    pub fn stop(self) -> Result<()> {
        drop(self.stop);
        self.thread.join().map_err(|_| anyhow!("the thread that answers HTTP failed"))?
    }
}

/// Answers until `stopped` is resolved.
async fn serve(listeners: Vec<TcpListener>, source: Source, stopped: oneshot::Receiver<()>) -> Result<()> {
    let connections = Arc::new(Mutex::new(Connections::new(most_connections())));
    let mut tasks = JoinSet::new();
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tasks.spawn(accept(listener, source.clone(), Arc::clone(&connections)));
    }
    let stop = tasks.spawn(async move {
        // Dropped or sent, it means the same.
        let _ = stopped.await;
    });
    match tasks.join_next_with_id().await {
        Some(Ok((id, ()))) if id == stop.id() => Ok(()),
        _ => bail!("accepting connections ended unexpectedly"),
    }
}

/// Half of the files that this process may have open, since looking takes some, too.
fn most_connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.and_then(|files| usize::try_from(files / 2).ok());
    half.map_or(CONNECTIONS, |half| half.clamp(1, CONNECTIONS))
}

/// Accepts connections for ever, whatever goes wrong with one.
async fn accept(listener: tokio::net::TcpListener, source: Source, connections: Arc<Mutex<Connections>>) {
    let lock = || connections.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if std::mem::take(&mut is_failing) {
                    info!("connections are accepted again");
                }
                let task = tokio::spawn(answer_one(stream, peer, source.clone()));
                lock().add(task.abort_handle());
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    warn!("cannot accept a connection: {error}; trying again, and closing the oldest");
                }
                lock().close_oldest();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Those that are open, the oldest first.
#[derive(Debug)]
struct Connections {
    open: VecDeque<AbortHandle>,
    most: usize,
}

impl Connections {
    fn new(most: usize) -> Self {
        Self { open: VecDeque::with_capacity(most), most }
    }

    fn add(&mut self, connection: AbortHandle) {
        self.open.retain(|connection| !connection.is_finished());
        if self.open.len() >= self.most {
            self.close_oldest();
        }
        self.open.push_back(connection);
    }

    fn close_oldest(&mut self) {
        if let Some(oldest) = self.open.pop_front() {
            oldest.abort();
        }
    }
}

/// Answers one request and closes the connection.
async fn answer_one(stream: TcpStream, peer: SocketAddr, source: Source) {
    let service = service_fn(|request: hyper::Request<_>| {
        let answer = answer(request.method(), request.uri().path(), &source);
        std::future::ready(Ok::<_, Infallible>(answer.into_response()))
    });
    // Keeping it open would let a client ask on without taking answers.
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("the connection of {peer} failed: {error}"),
        Err(_) => debug!("the connection of {peer} took too long, and is closed"),
    }
}

/// Status, content type and body.
#[derive(Debug, PartialEq, Eq)]
struct Answer(StatusCode, &'static str, Bytes);

impl Answer {
    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.2));
        *response.status_mut() = self.0;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.1));
        response
    }
}

fn answer(method: &Method, path: &str, source: &Source) -> Answer {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Answer(
            StatusCode::METHOD_NOT_ALLOWED,
            TEXT,
            Bytes::from_static(b"only GET and HEAD are answered\n"),
        );
    }
    let unavailable = |why: &str| Answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n").into());
    match path {
        "/metrics" => match &*source.page.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(text) => Answer(StatusCode::OK, METRICS, text.clone()),
            Err(why) => unavailable(why),
        },
        "/healthz" => match source.health.trouble() {
            None => Answer(StatusCode::OK, TEXT, Bytes::from_static(b"ok\n")),
            Some(why) => unavailable(&why),
        },
        _ => Answer(StatusCode::NOT_FOUND, TEXT, Bytes::from_static(b"there are /metrics and /healthz\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_answer() {
        let health = Arc::new(Health::default());
        let page: Page = Arc::new(Mutex::new(Ok("nuksm_x 1\n".into())));
        let source = Source { page, health };
        let get = |path: &str| {
            let Answer(status, _, body) = answer(&Method::GET, path, &source);
            (status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
        };
        assert_eq!(get("/metrics"), (200, "nuksm_x 1\n".into()));
        assert_eq!(get("/healthz"), (200, "ok\n".into()));
        assert_eq!(get("/").0, 404);
        assert_eq!(answer(&Method::POST, "/metrics", &source).0, StatusCode::METHOD_NOT_ALLOWED);
        *source.page.lock().unwrap() = Err("cannot read x".into());
        source.health.failing("collecting", "cannot read x");
        assert_eq!(get("/metrics"), (503, "cannot read x\n".into()));
        assert_eq!(get("/healthz"), (503, "collecting: cannot read x\n".into()));
    }

    #[test]
    fn a_name_is_all_its_addresses_and_a_port_that_is_taken_says_what_to_do() {
        let first = bind(&"localhost:0".parse().unwrap()).unwrap();
        assert!(first.iter().all(|listener| listener.local_addr().unwrap().ip().is_loopback()));
        let taken = first[0].local_addr().unwrap().to_string();
        let message = bind(&taken.parse().unwrap()).err().unwrap().to_string();
        assert!(message.contains(&taken) && message.contains("--listen"), "{message}");
        drop(first);
        // As where /etc/hosts has a line twice; nobody here takes ports by number.
        let twice = vec![taken.parse().unwrap(); 2];
        assert_eq!(bind_to(&taken.parse().unwrap(), twice).unwrap().len(), 1);
        // A block kept for documentation (RFC 5737): nobody has it.
        let message = bind(&"192.0.2.1:9911".parse().unwrap()).err().unwrap().to_string();
        assert!(message.contains("an address of this machine"), "{message}");
    }
}
