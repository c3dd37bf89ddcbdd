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

use super::chunk::ChunkCache;
use super::socket::{SocketOwner, SocketSink};
use super::write_loop::Stream;
use base::shutdown::{Shutdown, abort_on_panic};
use log::eventlog::Notifier;

pub(crate) struct SocketStream {
    pub(crate) stream: Box<Stream>,
    pub(crate) head: Bytes,
    pub(crate) socket: TcpStream,
    /// Bytes that were already read from the socket. They belong to the next request.
    pub(crate) read_buf: Bytes,
    pub(crate) owner: Box<dyn SocketOwner>,
}

/// The threads, one for two cores. They end with [`stop`](Self::stop), or with the last clone.
#[derive(Clone)]
pub struct StreamWorkers(Arc<Inner>);

struct Inner {
    workers: Vec<Worker>,
    next: AtomicUsize,
    stop: CancellationToken,
    _stop_guard: DropGuard,
    threads: TaskTracker,
}

struct Worker {
    runtime: Handle,
    notifier: Arc<Notifier>,
    chunk_cache: Arc<ChunkCache>,
}

impl StreamWorkers {
    pub fn count() -> usize {
        let half = available_parallelism().map_or(1, |cores| cores.get() / 2);
        half.max(1)
    }

    pub fn start() -> io::Result<Self> {
        let stop = CancellationToken::new();
        let threads = TaskTracker::new();
        let workers = (0..Self::count()).map(|_| Worker::start(stop.clone(), &threads));
        let workers = workers.collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Inner {
            workers,
            next: AtomicUsize::new(0),
            _stop_guard: stop.clone().drop_guard(),
            stop,
            threads,
        })))
    }

    /// Stops the threads and their tasks. Waits at most `limit` until they have released everything.
    pub async fn stop(&self, limit: Duration) {
        self.0.stop.cancel();
        self.0.threads.close();
        let stopped = tokio::time::timeout(limit, self.0.threads.wait()).await;
        if stopped.is_err() {
            tracing::warn!("a stream worker did not stop in time");
        }
    }

    pub(crate) fn spawn(&self, stream: SocketStream, shutdown: &Shutdown) -> io::Result<()> {
        let Inner { workers, next, .. } = &*self.0;
        let worker = &workers[next.fetch_add(1, Ordering::Relaxed) % workers.len()];
        let sink = SocketSink::new(
            register_with(stream.socket, &worker.runtime)?,
            stream.head,
            stream.read_buf,
            stream.owner,
            Arc::clone(&worker.chunk_cache),
        );
        let notifier = Some(Arc::clone(&worker.notifier));
        shutdown.spawn_client_on(&worker.runtime, stream.stream.run(sink, notifier));
        Ok(())
    }
}

pub(crate) fn register_with(socket: TcpStream, runtime: &Handle) -> io::Result<TcpStream> {
    let socket = socket.into_std()?;
    let _inside = runtime.enter();
    TcpStream::from_std(socket)
}

impl Worker {
    /// The thread creates its own runtime, because a runtime must not be dropped in a thread of another
    /// runtime.
    fn start(stop: CancellationToken, threads: &TaskTracker) -> io::Result<Self> {
        let notifier = Arc::<Notifier>::default();
        let running_notifier = Arc::clone(&notifier);
        let thread_token = threads.token();
        let (runtime_sender, runtime) = mpsc::sync_channel(1);
        Shutdown::spawn_thread("streams", move || {
            let mut builder = Builder::new_current_thread();
            let runtime = match builder.enable_all().thread_name("streams-read").build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = runtime_sender.send(Err(error));
                    return;
                }
            };
            let _ = runtime_sender.send(Ok(runtime.handle().clone()));
            runtime.block_on(async {
                tokio::select! {
                    () = abort_on_panic(running_notifier.run()) => {}
                    () = stop.cancelled() => {}
                }
            });
            runtime.shutdown_background();
            drop(thread_token);
        })?;
        let runtime = runtime.recv().map_err(io::Error::other)??;
        Ok(Self {
            runtime,
            notifier,
            chunk_cache: Arc::default(),
        })
    }
}
