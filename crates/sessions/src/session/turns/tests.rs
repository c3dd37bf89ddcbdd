//! Tables of inputs and effects of the turns of a session, without tasks, a store or time.
//!
//! All times are seconds after one base time.

mod answers;
mod cancel;
mod deadlines;
mod queue;
mod work;

use super::*;
use base::types::Timestamp;
use events::api::PromptStatus;
use wire::jsonrpc::PendingTables;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The part under test, and the ids of its calls.
struct Fixture {
    turns: Turns,
    calls: PendingTables,
    base: Instant,
    ends: watch::Receiver<u64>,
}

impl Fixture {
    fn new() -> Self {
        let (sender, ends) = watch::channel(0);
        let base = Instant::now();
        Self {
            turns: Turns::new(sender, base),
            calls: PendingTables::default(),
            base,
            ends,
        }
    }

    /// A turn whose prompt is not sent. Its event has the sequence number 1.
    fn unsent() -> Self {
        let mut fixture = Self::new();
        fixture.begin(1);
        fixture
    }

    /// A turn whose prompt was sent at second 0.
    fn sent() -> Self {
        let mut fixture = Self::unsent();
        fixture.send();
        fixture
    }

    /// A sent turn that was cancelled at the given second.
    fn cancelled_at(seconds: u64) -> Self {
        let mut fixture = Self::sent();
        assert_eq!(fixture.cancel(seconds), Some(CancelStep::Send));
        fixture
    }

    fn at(&self, seconds: u64) -> Instant {
        self.base + Duration::from_secs(seconds)
    }

    /// The seconds from the base time.
    fn seconds(&self, at: Option<Instant>) -> Option<u64> {
        at.map(|at| at.duration_since(self.base).as_secs())
    }

    fn begin(&mut self, number: u32) {
        self.turns.begin(queued(number), 1, self.base);
    }

    fn send(&mut self) -> CallId {
        let call = self.calls.register_call();
        self.turns.prompt_sent(Some(call), self.base);
        call
    }

    /// Ends the running turn while the process stays attached.
    fn end(&mut self) -> PromptId {
        let ended = self.turns.take().expect("a turn runs").record.prompt_id;
        self.turns.ended(Some(ended));
        ended
    }

    /// Passes the response to the prompt of ACP v2.
    fn acknowledge(&mut self) {
        let answered = self.turns.answered(Ok(raw("{}")), false);
        assert_eq!(named(answered), "none");
    }

    /// Cancels the running turn as the actor does. Returns the effect on the turn or on the agent.
    fn cancel(&mut self, seconds: u64) -> Option<CancelStep> {
        let now = self.at(seconds);
        self.cancel_for(CancelCause::Person, now)
    }

    fn cancel_for(&mut self, cause: CancelCause, now: Instant) -> Option<CancelStep> {
        if self.turns.cancel(cause, now) {
            Some(CancelStep::Send)
        } else {
            self.turns.is_unsent().then_some(CancelStep::Complete)
        }
    }

    /// Reacts to the deadline of the turn as the actor does.
    fn overdue(&mut self, limits: &Limits, clock: TurnClock, now: Instant) -> Option<CancelStep> {
        if now < self.turns.deadline(limits, clock)? {
            None
        } else if !self.turns.is_cancelling() {
            let cause = self.turns.deadline_cause(limits, clock, now);
            self.cancel_for(cause, now)
        } else if self.turns.is_stopping_process() {
            Some(CancelStep::AbandonProcess)
        } else if self.turns.is_idle() {
            Some(CancelStep::Complete)
        } else {
            self.turns.stop_begun();
            Some(CancelStep::StopProcess)
        }
    }

    fn state(&mut self, update: &str, seconds: u64) -> bool {
        let now = self.at(seconds);
        self.turns.track_work(update::STATE, &raw(update), now)
    }

    fn enqueue(&mut self, numbers: impl IntoIterator<Item = u32>) {
        numbers
            .into_iter()
            .for_each(|number| self.turns.enqueue(queued(number)));
    }

    /// The ids of the queue, in order. Empties the queue.
    fn drain_queue(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.turns.dequeue())
            .map(|queued| queued.record.prompt_id.number())
            .collect()
    }
}

/// The step that the actor takes to cancel the running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CancelStep {
    /// The turn ends at once: its prompt was not sent to the agent, or the agent is idle.
    Complete,
    /// The agent is asked to cancel.
    Send,
    StopProcess,
    AbandonProcess,
}

const BUSY: &str = r#"{"state":"running"}"#;
const IDLE: &str = r#"{"state":"idle"}"#;
const END_TURN: &str = r#"{"state":"idle","stopReason":"end_turn"}"#;

fn prompt(number: u32) -> PromptId {
    PromptId::new(number)
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn error(code: i64) -> RpcError {
    RpcError {
        code,
        message: "m".to_owned(),
        data: None,
    }
}

fn queued(number: u32) -> Queued {
    let record = PromptRecord {
        prompt_id: prompt(number),
        status: PromptStatus::Queued,
        by: "alice".to_owned(),
        created_at: Timestamp::from_millis(0),
        ended_at: None,
        first_seq: 1,
        last_seq: None,
        stop_reason: None,
        usage: None,
        cancel_cause: None,
        error: None,
        unsent: false,
        imported: false,
        acp_request: None,
        broadcast: None,
        edit: None,
    };
    let blocks = raw(&format!(r#"[{{"type":"text","text":"{number}"}}]"#));
    Queued {
        record,
        request: PromptRequest {
            trace: TraceContext::parse(PARENT, None),
            ..PromptRequest::new(blocks)
        },
        restored: false,
        checked: None,
        span: Arc::new(Span::none()),
        trace: None,
    }
}

fn limits() -> Limits {
    Limits {
        cancel_timeout: Duration::from_secs(15),
        cancel_total_timeout: Duration::from_secs(30),
        drain_cancel_timeout: Duration::from_secs(1),
        ..Limits::default()
    }
}

/// The end of the turn as text: its stop reason or the code of the error.
fn named(end: Option<Result<Completion, RpcError>>) -> String {
    match end {
        None => "none".to_owned(),
        Some(Ok(completion)) => format!("completed {}", completion.stop_reason),
        Some(Err(error)) => format!("failed {}", error.code),
    }
}
