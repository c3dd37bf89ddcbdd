//! The state for one client.

use std::collections::{HashMap, VecDeque};

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::input::Control;
use super::permission::Permissions;
use super::settings::Settings;
use super::tool::Tools;
use super::writer::Writer;
use crate::acp::RawObject;
use crate::jsonrpc::Message;
use crate::served::dialect::{Served, ServedContext};
use crate::served::message::raw;

/// The maximum number of calls to the agent without an answer.
const MAX_CALLS: usize = 256;

/// The purpose of a call to the agent.
#[derive(Debug)]
pub(super) enum Call {
    Initialize,
    NewSession,
    Prompt,
    Mode {
        request: Box<RawValue>,
        mode: String,
    },
    Model {
        request: Box<RawValue>,
        model: String,
    },
}

/// The progress of the set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Initializing,
    Creating,
    Ready,
    /// The agent rejected the session.
    Failed,
}

/// The running turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) began: Instant,
    pub(super) is_interrupted: bool,
    /// The last `usage_update`.
    pub(super) context: Option<Context>,
}

/// The size of the context and the cost.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) used: u64,
    pub(super) size: u64,
    pub(super) cost: Option<Box<RawValue>>,
}

impl Context {
    pub(super) fn parse(update: &RawObject<'_>) -> Option<Self> {
        let number = |name| update.get(name)?.get().parse().ok();
        let cost = update
            .object("cost")
            .filter(|cost| cost.text("currency").as_deref() == Some("USD"));
        let cost = cost
            .and_then(|cost| cost.get("amount"))
            .map(ToOwned::to_owned);
        Some(Self {
            used: number("used")?,
            size: number("size")?,
            cost,
        })
    }
}

/// The state for one client.
#[derive(Debug)]
pub(in crate::served) struct StreamJson {
    pub(super) context: ServedContext,
    pub(super) phase: Phase,
    /// The id of the last call to the agent.
    last_call: u64,
    pub(super) calls: HashMap<u64, Call>,
    /// The control requests that wait for the session.
    pub(super) controls: Vec<(Box<RawValue>, Control)>,
    /// The prompts that wait for the session, or for the end of the turn.
    pub(super) prompts: VecDeque<Box<RawValue>>,
    pub(super) turn: Option<Turn>,
    pub(super) settings: Settings,
    pub(super) writer: Writer,
    pub(super) tools: Tools,
    pub(super) permissions: Permissions,
    pub(super) invalid_lines: u32,
}

impl StreamJson {
    pub(in crate::served) fn new(context: ServedContext) -> Self {
        Self {
            context,
            phase: Phase::New,
            last_call: 0,
            calls: HashMap::new(),
            controls: Vec::new(),
            prompts: VecDeque::new(),
            turn: None,
            settings: Settings::default(),
            writer: Writer::default(),
            tools: Tools::default(),
            permissions: Permissions::default(),
            invalid_lines: 0,
        }
    }

    /// Sends a call to the agent. Returns false if too many calls have no answer.
    pub(super) fn call(
        &mut self,
        call: Call,
        method: &str,
        params: Box<RawValue>,
        served: &mut Served,
    ) -> bool {
        if self.calls.len() >= MAX_CALLS {
            return false;
        }
        self.last_call += 1;
        self.calls.insert(self.last_call, call);
        let id = raw(&self.last_call);
        served.to_agent.push(Message::Request {
            id,
            method: method.into(),
            params,
        });
        true
    }
}
