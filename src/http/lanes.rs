//! Threads that write streams and do nothing else.
//!
//! A thousand readers of one session are a thousand short tasks, all at once. Spread over the workers of the runtime they take every
//! core from the agents and from each other; here those of a lane go one after the other, on one core, with what they
//! share in its cache.

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

/// A stream that leaves its connection.
pub(super) struct Leaves {
    pub(super) stream: Box<Stream>,
    /// Of the answer: it goes before what the stream writes.
    pub(super) head: Bytes,
    pub(super) socket: TcpStream,
    pub(super) held: Held,
    /// Where the socket goes after a complete stream; `None`: it closes.
    pub(super) home: Option<Box<Home>>,
    /// Bytes that the client sent already, which belong to its next request.
    pub(super) early: Bytes,
}

/// The threads, one for two cores. They end by [`end`](Self::end), or with the last clone.
#[derive(Debug, Clone)]
pub struct Lanes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lanes: Vec<Lane>,
    /// The lane of the next stream.
    next: AtomicUsize,
    end: CancellationToken,
    _ends: DropGuard,
    /// A token for each thread that is there.
    threads: TaskTracker,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    herald: Arc<Herald>,
    made: Arc<Made>,
}

impl Lanes {
    /// How many there are.
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

    /// Ends the threads and what still runs on them, and waits until they hold nothing more; no longer than `limit`.
    pub async fn end(&self, limit: Duration) {
        self.0.end.cancel();
        self.0.threads.close();
        if tokio::time::timeout(limit, self.0.threads.wait()).await.is_err() {
            tracing::warn!("a thread for streams did not end in time");
        }
    }

    /// Has a stream written to its socket.
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
    /// The runtime is made by its own thread: it cannot be dropped on one of another runtime.
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
