//! What is measured: each server started as its documentation says, in front of the synthetic agent.

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
pub(crate) use gateway::{Gateway, Up as GatewayUp};

pub(crate) const LIMIT: &str = "raw-epoll";
pub(crate) const GATEWAY: &str = "acp-gateway";
pub(crate) const PREVIOUS: &str = "previous";

/// Where everything is.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The gateway's release build.
    pub(crate) gateway: PathBuf,
    /// The harness's own programs.
    pub(crate) programs: PathBuf,
    /// What `scripts/bench --peers` installed.
    pub(crate) peers: PathBuf,
    /// For scratch files, on a real disk.
    pub(crate) scratch: PathBuf,
}

impl Places {
    pub(crate) fn agent(&self) -> PathBuf {
        self.programs.join("synthetic-agent")
    }
}

/// How many events each measurement sends; slow servers get fewer, so that a round takes minutes. None: it cannot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts {
    pub(crate) single: u64,
    pub(crate) fan: Option<u64>,
    pub(crate) sessions: Option<u64>,
    /// Idle streams.
    pub(crate) idle: Option<usize>,
    /// Events that are replayed.
    pub(crate) replay: Option<u64>,
    /// Events to 100 readers beside some that never read.
    pub(crate) stalled: Option<u64>,
}

/// A kind of server.
pub(crate) trait Target: fmt::Debug {
    /// As it is named on the command line, in results and in the table.
    fn name(&self) -> &'static str;

    /// With the version that was measured.
    fn title(&self) -> String;

    fn amounts(&self) -> Amounts;

    /// Why it cannot be measured here.
    fn missing(&self) -> Option<String>;

    /// Starts it with its files in a folder.
    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>>;

    /// The gateway itself, for what only it is asked.
    fn gateway(&self) -> Option<&Gateway> {
        None
    }
}

/// A server that accepts connections.
pub(crate) trait Running {
    /// Makes the session of this number, so that it can be followed and prompted.
    fn session(&mut self, number: usize) -> Outcome<Session>;

    /// Whose processor time counts.
    fn workers(&self) -> Vec<u32>;

    /// Whose memory counts: not a bridge's.
    fn holders(&self) -> Vec<u32> {
        self.workers()
    }

    fn stop(self: Box<Self>) -> Outcome;
}

type PromptRequest = Box<dyn Fn(&str) -> Vec<u8>>;

/// How a session is followed and prompted.
pub(crate) struct Session {
    pub(crate) address: SocketAddr,
    /// The request that follows its events from now on, and the one that reads them all.
    pub(crate) follow: Vec<u8>,
    pub(crate) replay: Option<Vec<u8>>,
    pub(crate) prompt_address: SocketAddr,
    /// The request that sends a prompt of this text.
    pub(crate) prompt: PromptRequest,
    /// What a stream shows when a turn has ended, where the next prompt must wait for that.
    pub(crate) turn_end: Option<&'static [u8]>,
    /// Connections on which the session depends.
    pub(crate) _held: Vec<TcpStream>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("address", &self.address).finish_non_exhaustive()
    }
}

/// All of them, the limit and the gateway first.
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
