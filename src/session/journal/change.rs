//! The changes of records that are saved in the commit of one event.

use crate::eventlog::Records;
use crate::session::idempotency::Claim;
use crate::session::record::{PromptRecord, RequestRecord, SessionRecord, TerminalRecord};
use crate::types::{PromptId, RequestId};

/// The records that an event changes.
pub(in crate::session) struct Change<'a> {
    pub(in crate::session) record: &'a mut SessionRecord,
    records: &'a mut Records,
}

impl<'a> Change<'a> {
    pub(super) fn new(record: &'a mut SessionRecord, records: &'a mut Records) -> Self {
        Self { record, records }
    }

    /// Adds a prompt that waits behind another one.
    pub(in crate::session) fn queue_prompt(&mut self, prompt: &PromptRecord) {
        self.record.last_prompt = self.record.last_prompt.max(prompt.prompt_id.number());
        self.record.queued.push(prompt.prompt_id);
        self.put_prompt(prompt);
    }

    /// Makes a prompt the running one, and removes it from the queue.
    pub(in crate::session) fn run_prompt(&mut self, prompt: &PromptRecord) {
        self.record.last_prompt = self.record.last_prompt.max(prompt.prompt_id.number());
        self.record.begin_prompt(prompt.prompt_id);
        self.put_prompt(prompt);
    }

    /// Saves a prompt that has ended.
    pub(in crate::session) fn end_prompt(&mut self, prompt: &PromptRecord) {
        self.record.prompt_id.take_if(|running| *running == prompt.prompt_id);
        self.record.queued.retain(|queued| *queued != prompt.prompt_id);
        self.put_prompt(prompt);
    }

    pub(in crate::session) fn put_prompt(&mut self, prompt: &PromptRecord) {
        prompt.put(self.record.session_id, self.records);
    }

    /// Saves an open request.
    pub(in crate::session) fn open_request(&mut self, id: RequestId, request: &RequestRecord) {
        self.record.last_request = self.record.last_request.max(id.number());
        self.record.open_requests.push(id);
        request.put(self.record.session_id, id, self.records);
    }

    /// Saves a resolved request.
    pub(in crate::session) fn resolve_request(&mut self, id: RequestId, request: &RequestRecord) {
        self.record.open_requests.retain(|open| *open != id);
        request.put(self.record.session_id, id, self.records);
    }

    /// Saves a terminal whose command runs.
    pub(in crate::session) fn open_terminal(&mut self, terminal: &TerminalRecord) {
        let id = terminal.shown.terminal_id;
        self.record.last_terminal = self.record.last_terminal.max(id.number());
        self.record.open_terminals.push(id);
        terminal.put(self.record.session_id, self.records);
    }

    /// Saves a terminal whose command has ended.
    pub(in crate::session) fn close_terminal(&mut self, terminal: &TerminalRecord) {
        self.record.open_terminals.retain(|open| *open != terminal.shown.terminal_id);
        terminal.put(self.record.session_id, self.records);
    }

    /// Saves the idempotency record of the request that caused the event.
    pub(in crate::session) fn put_claim(&mut self, claim: &Claim, prompt: Option<PromptId>) {
        claim.put(self.record.session_id, prompt, self.records);
    }
}
