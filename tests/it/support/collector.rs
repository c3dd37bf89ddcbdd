//! A collector for OTLP over HTTP, as operators run one.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, StatusCode, Uri};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::wait::LONGEST;

/// One request.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct Collector {
    address: SocketAddr,
    exports: mpsc::Receiver<Export>,
    server: JoinHandle<io::Result<()>>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::answering(StatusCode::OK).await
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the test owns the server and ends it"
    )]
    pub(crate) async fn answering(status: StatusCode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, exports) = mpsc::channel(10_000);
        let receive = move |State(sender): State<mpsc::Sender<Export>>,
                            uri: Uri,
                            headers: HeaderMap,
                            body: Bytes| async move {
            let path = uri.path().to_owned();
            let export = Export {
                path,
                headers,
                body,
            };
            // The test may have ended.
            let _ = sender.send(export).await;
            status
        };
        let router = Router::new().fallback(receive).with_state(sender);
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            address,
            exports,
            server,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that arrived and were not taken.
    pub(crate) fn received(&mut self) -> Vec<Export> {
        std::iter::from_fn(|| self.exports.try_recv().ok()).collect()
    }

    pub(crate) async fn next(&mut self) -> Export {
        let next = timeout(LONGEST, self.exports.recv()).await;
        next.expect("a request in time").expect("it runs")
    }
}
