//! Threads that write streams and do nothing else.
//!
//! A thousand readers of one session are a thousand short tasks, all at once. Spread over the workers of the runtime they take every
//! core from the agents and from each other; here those of a lane go one after the other, on one core, with what they
//! share in its cache.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::accept::Held;
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
}

/// The threads, one for two cores. They end with the last clone.
#[derive(Debug, Clone)]
pub struct Lanes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lanes: Vec<Lane>,
    /// The lane of the next stream.
    next: AtomicUsize,
    _end: DropGuard,
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
        let end = CancellationToken::new();
        let lanes = (0..Self::count()).map(|_| Lane::start(end.clone())).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Inner { lanes, next: AtomicUsize::new(0), _end: end.drop_guard() })))
    }

    /// Has a stream written to its socket.
    pub(super) fn begin(&self, leaves: Leaves, shutdown: &Shutdown) -> io::Result<()> {
        let Inner { lanes, next, .. } = &*self.0;
        let lane = &lanes[next.fetch_add(1, Ordering::Relaxed) % lanes.len()];
        let Leaves { mut stream, head, socket, held } = leaves;
        let socket = socket.into_std()?;
        let socket = {
            let _inside = lane.runtime.enter();
            TcpStream::from_std(socket)?
        };
        stream.heeds(&lane.herald);
        let wire = Socket::new(socket, held, head, Arc::clone(&lane.made));
        shutdown.spawn_client_on(&lane.runtime, stream.run(wire));
        Ok(())
    }
}

impl Lane {
    fn start(end: CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().thread_name("streams-read").build()?;
        let lane = Self { runtime: runtime.handle().clone(), herald: Arc::default(), made: Arc::default() };
        let herald = Arc::clone(&lane.herald);
        Shutdown::thread("streams", move || {
            runtime.block_on(async {
                tokio::select! {
                    () = vital(herald.run()) => {}
                    () = end.cancelled() => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(lane)
    }
}
