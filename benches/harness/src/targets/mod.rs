//! The targets: each server is started as in its documentation, with the synthetic agent.

mod acp_http;
mod alone;
mod bridged;
mod config;
mod durable_streams;
mod gateway;
mod nchan;
mod raw_epoll;
mod sandbox_agent;
mod supergateway;

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use crate::Outcome;

use alone::Alone;
use bridged::Bridged;
pub(crate) use config::DEFAULT_ISOLATION;
pub(crate) use gateway::{Gateway, Up as GatewayUp};

pub(crate) const LIMIT: &str = "raw-epoll";
pub(crate) const GATEWAY: &str = "acp-gateway";
pub(crate) const PREVIOUS: &str = "previous";

/// The locations of all programs.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The gateway's release build.
    pub(crate) gateway: PathBuf,
    /// The harness's own programs.
    pub(crate) programs: PathBuf,
    /// The programs that `scripts/bench --peers` installed.
    pub(crate) peers: PathBuf,
    /// The directory for scratch files, on a real disk.
    pub(crate) scratch: PathBuf,
    /// The level of isolation of the gateway's agents.
    pub(crate) isolation: String,
}

impl Places {
    pub(crate) fn agent(&self) -> PathBuf {
        self.programs.join("synthetic-agent")
    }
}

/// The number of events per measurement. Slow servers get fewer, so that a round takes minutes. `None` means
/// not supported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    pub(crate) single: u64,
    pub(crate) fan: Option<u64>,
    pub(crate) sessions: Option<u64>,
    /// Idle streams.
    pub(crate) idle: Option<usize>,
    /// Replayed events.
    pub(crate) replay: Option<u64>,
    /// Events for 100 readers next to some that never read.
    pub(crate) stalled: Option<u64>,
}

/// A kind of server.
pub(crate) trait Target: fmt::Debug {
    /// The name on the command line, in results and in the table.
    fn name(&self) -> &'static str;

    /// The title with the measured version.
    fn title(&self) -> String;

    fn amounts(&self) -> Amounts;

    /// The reason why it cannot be measured here.
    fn missing(&self) -> Option<String>;

    /// Starts it with its files in a directory.
    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>>;

    /// The gateway, for tests that only it supports.
    fn gateway(&self) -> Option<&Gateway> {
        None
    }
}

/// A server that accepts connections.
pub(crate) trait Running {
    /// Creates the session with this number, so that it can be followed and prompted.
    fn session(&mut self, number: usize) -> Outcome<Session>;

    /// The processes whose processor time counts.
    fn workers(&self) -> Vec<u32>;

    /// The processes whose memory counts, without a bridge.
    fn holders(&self) -> Vec<u32> {
        self.workers()
    }

    fn stop(self: Box<Self>) -> Outcome;
}

type PromptRequest = Box<dyn Fn(&str) -> Vec<u8>>;

/// The requests to follow and prompt a session.
pub(crate) struct Session {
    pub(crate) address: SocketAddr,
    /// The request that follows new events, and the request that reads all events.
    pub(crate) follow: Vec<u8>,
    pub(crate) replay: Option<Vec<u8>>,
    pub(crate) prompt_address: SocketAddr,
    /// The request that sends a prompt with this text.
    pub(crate) prompt: PromptRequest,
    /// The bytes in a stream that mark the end of a turn, if the next prompt must wait for it.
    pub(crate) turn_end: Option<&'static [u8]>,
    /// Connections that keep the session alive.
    pub(crate) _held: Vec<TcpStream>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// All targets, the physical limit and the gateway first.
pub(crate) fn all(places: &Places) -> Vec<Box<dyn Target>> {
    vec![
        Box::new(raw_epoll::RawEpoll(places.clone())),
        Box::new(Gateway::current(places)),
        Box::new(acp_http::AcpHttp(places.clone())),
        Box::new(durable_streams::DurableStreams(places.clone())),
        Box::new(nchan::Nchan(places.clone())),
        Box::new(sandbox_agent::SandboxAgent(places.clone())),
        Box::new(supergateway::Supergateway(places.clone())),
    ]
}

fn absent(program: &Path) -> Option<String> {
    (!program.exists()).then(|| "not installed".to_owned())
}

const STREAM: &str = "Accept: text/event-stream";
