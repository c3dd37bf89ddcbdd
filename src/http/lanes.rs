//! Threads that only write streams.
//!
//! When an event arrives, a thousand readers of one session become a thousand short tasks. On the workers of
//! the main runtime, these tasks would occupy every core and compete with the agents. Here, a worker runs its
//! streams one after the other on one core, with their shared data in its cache.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::available_parallelism;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::accept::{Held, Home};
use super::stream::{Made, Socket, Stream};
use crate::eventlog::Herald;
use crate::shutdown::{Shutdown, vital};

/// A stream that has hijacked its connection.
pub(super) struct Leaves {
    pub(super) stream: Box<Stream>,
    /// The head of the response. It is written before the stream.
    pub(super) head: Bytes,
    pub(super) socket: TcpStream,
    pub(super) held: Held,
    /// Returns the socket after a complete stream. `None` closes the socket.
    pub(super) home: Option<Box<Home>>,
    /// Bytes that hyper did not read. They belong to the next request.
    pub(super) early: Bytes,
}

/// The threads, one for two cores. They end with [`stop`](Self::stop), or with the last clone.
#[derive(Debug, Clone)]
pub struct Lanes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lanes: Vec<Lane>,
    /// Selects the worker of the next stream.
    next: AtomicUsize,
    end: CancellationToken,
    _ends: DropGuard,
    /// Has a token for each running thread.
    threads: TaskTracker,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    herald: Arc<Herald>,
    made: Arc<Made>,
}

impl Lanes {
    /// The number of threads.
    pub fn count() -> usize {
        available_parallelism().map_or(1, |cores| cores.get() / 2).max(1)
    }

    pub fn start() -> io::Result<Self> {
        let (end, threads) = (CancellationToken::new(), TaskTracker::new());
        let ends = end.clone().drop_guard();
        let lanes = (0..Self::count()).map(|_| Lane::start(end.clone(), &threads));
        let lanes = lanes.collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Inner { lanes, next: AtomicUsize::new(0), end, _ends: ends, threads })))
    }

    /// Stops the threads and their tasks. Waits at most `limit` until they have released everything.
    pub async fn end(&self, limit: Duration) {
        self.0.end.cancel();
        self.0.threads.close();
        if tokio::time::timeout(limit, self.0.threads.wait()).await.is_err() {
            tracing::warn!("a stream worker did not stop in time");
        }
    }

    /// Spawns a task that writes the stream to its socket.
    pub(super) fn begin(&self, leaves: Leaves, shutdown: &Shutdown) -> io::Result<()> {
        let Inner { lanes, next, .. } = &*self.0;
        let lane = &lanes[next.fetch_add(1, Ordering::Relaxed) % lanes.len()];
        let Leaves { stream, head, socket, held, home, early } = leaves;
        let socket = moved(socket, &lane.runtime)?;
        let wire = Socket::new(socket, held, head, Arc::clone(&lane.made)).and_then(home, early);
        let herald = Arc::clone(&lane.herald);
        shutdown.spawn_client_on(&lane.runtime, stream.run(wire, Some(herald)));
        Ok(())
    }
}

/// Registers a socket with another runtime.
pub(super) fn moved(socket: TcpStream, runtime: &Handle) -> io::Result<TcpStream> {
    let socket = socket.into_std()?;
    let _inside = runtime.enter();
    TcpStream::from_std(socket)
}

impl Lane {
    /// The thread creates its own runtime, because a runtime must not be dropped in a thread of another
    /// runtime.
    fn start(end: CancellationToken, threads: &TaskTracker) -> io::Result<Self> {
        let herald = Arc::<Herald>::default();
        let (heeded, there) = (Arc::clone(&herald), threads.token());
        let (made, runtime) = mpsc::sync_channel(1);
        Shutdown::thread("streams", move || {
            let runtime = match Builder::new_current_thread().enable_all().thread_name("streams-read").build()
            {
                Ok(runtime) => runtime,
                Err(error) => return drop(made.send(Err(error))),
            };
            drop(made.send(Ok(runtime.handle().clone())));
            runtime.block_on(async {
                tokio::select! {
                    () = vital(heeded.run()) => {}
                    () = end.cancelled() => {}
                }
            });
            runtime.shutdown_background();
            drop(there);
        })?;
        let runtime = runtime.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, herald, made: Arc::default() })
    }
}
