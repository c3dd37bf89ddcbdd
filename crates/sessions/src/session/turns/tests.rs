//! Tables of inputs and effects of the turns of a session, without tasks, a store or time.
//!
//! All times are seconds after one base time.

mod answers;
mod cancel;
mod deadlines;
mod queue;
mod work;

use super::*;
use base::types::{PromptStatus, Timestamp};
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
        let effect = fixture
            .turns
            .cancel(CancelCause::Person, fixture.at(seconds));
        assert_eq!(effect, Some(CancelStep::Send(prompt(1))));
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
        let ended = self.turns.take().expect("a turn runs").prompt_id;
        self.turns.ended(Some(ended));
        ended
    }

    /// Passes the response to the prompt of ACP v2.
    fn acknowledge(&mut self) {
        let answered = self.turns.answered(Ok(raw("{}")), false, false);
        assert_eq!(named(answered), "acknowledged");
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

/// The effect as text: its kind, with the stop reason or the code of the error.
fn named(answered: Option<Answered>) -> String {
    match answered {
        None => "none".to_owned(),
        Some(Answered::Acknowledged) => "acknowledged".to_owned(),
        Some(Answered::Completed(completion)) => format!("completed {}", completion.stop_reason),
        Some(Answered::Cancelled) => "cancelled".to_owned(),
        Some(Answered::SessionRejected(error)) => format!("session rejected {}", error.code),
        Some(Answered::Failed(error)) => format!("failed {}", error.code),
        Some(Answered::Invalid(error)) => format!("invalid {}", error.code),
    }
}
