//! Tables of inputs and effects of the requests that the gateway serves, without the work itself.
//!
//! The tests of a terminal need a process: see `tests/it/terminals.rs`.

use futures_util::FutureExt as _;

use super::*;
use wire::acp::{self, error_code};
use wire::jsonrpc::PendingTables;
use workspace::StartError;

/// The part under test, with the receiver of its completions.
struct Fixture {
    part: Work,
    completions: mpsc::Receiver<Completion>,
    incoming: PendingTables,
}

impl Fixture {
    fn new(limits: &Limits) -> Self {
        let (sender, completions) = mpsc::channel(8);
        let part = Work::new(sender, limits);
        Self {
            part,
            completions,
            incoming: PendingTables::default(),
        }
    }

    fn incoming(&mut self) -> IncomingId {
        self.incoming.register_request(RawValue::NULL.to_owned())
    }

    /// Begins work of a kind, without a relevant limit.
    fn begin(&mut self, work: Kind) -> (IncomingId, Completer, CancellationToken) {
        let id = self.incoming();
        let begun = self.part.begin(id, work == Kind::Cancellable, 8);
        let (completer, cancelled) = begun.expect("the limit is not reached");
        (id, completer, cancelled)
    }

    fn is_serving(&self) -> bool {
        !self.part.open.is_empty()
    }

    /// Completes the work with a result. Returns the request that gets it.
    fn complete(&mut self, completer: Completer) -> Option<IncomingId> {
        let outcome = Ok(WorkOutput::Result(acp::empty_result(), None));
        completer
            .complete(outcome)
            .now_or_never()
            .expect("the channel has capacity");
        let completion = self
            .completions
            .try_recv()
            .expect("the completion is queued");
        let (incoming, outcome) = self.part.completed(completion)?;
        assert!(matches!(outcome, Ok(WorkOutput::Result(..))));
        Some(incoming)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cancellable,
    Uncancellable,
}

const WORK: [Kind; 2] = [Kind::Cancellable, Kind::Uncancellable];

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// Params of this size in bytes.
fn params(bytes: usize) -> Box<RawValue> {
    raw(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

#[test]
fn each_request_is_completed_once() {
    for work in WORK {
        let mut fixture = Fixture::new(&Limits::default());
        assert!(!fixture.is_serving() && !fixture.part.is_busy());
        let (id, completer, _token) = fixture.begin(work);
        assert!(fixture.is_serving() && fixture.part.is_busy(), "{work:?}");
        assert_eq!(fixture.complete(completer), Some(id), "{work:?}");
        assert!(!fixture.is_serving() && !fixture.part.is_busy(), "{work:?}");
        assert!(
            !fixture.part.cancel(id),
            "{work:?}: a completed request is unknown"
        );
    }
}

#[test]
fn the_requests_in_progress_are_limited() {
    let mut fixture = Fixture::new(&Limits::default());
    let ids = [1, 2, 3, 4].map(|_| fixture.incoming());
    // (request, cancellable, limit, accepted)
    for (id, cancellable, max, accepted) in [
        (ids[0], true, 0, false),
        (ids[0], false, 0, false),
        (ids[0], true, 2, true),
        (ids[1], false, 2, true),
        (ids[2], true, 2, false),
        (ids[2], false, 2, false),
        (ids[2], false, 3, true),
    ] {
        assert_eq!(
            fixture.part.begin(id, cancellable, max).is_some(),
            accepted,
            "{id:?} {cancellable} {max}"
        );
    }
    assert!(fixture.part.cancel(ids[0]));
    assert!(
        fixture.part.begin(ids[3], true, 3).is_some(),
        "a cancelled request frees its place"
    );
}

#[test]
fn a_cancel_by_the_agent_stops_only_cancellable_work() {
    for work in WORK {
        let mut fixture = Fixture::new(&Limits::default());
        let (id, completer, token) = fixture.begin(work);
        assert!(
            fixture.part.cancel(id),
            "{work:?}: the agent gets the cancellation error"
        );
        assert_eq!(token.is_cancelled(), work == Kind::Cancellable);
        // Work that the actor needs still occupies its place until its end.
        assert_eq!(fixture.is_serving(), work == Kind::Uncancellable);
        assert_eq!(
            fixture.complete(completer),
            None,
            "{work:?}: the agent does not wait for the result"
        );
        assert!(!fixture.is_serving(), "{work:?}");
    }
}

#[test]
fn a_cancel_of_an_unknown_request_has_no_effect() {
    let mut fixture = Fixture::new(&Limits::default());
    let unknown = fixture.incoming();
    let (_, _completer, token) = fixture.begin(Kind::Cancellable);
    assert!(!fixture.part.cancel(unknown));
    assert!(!token.is_cancelled());
}

#[test]
fn the_release_of_the_process_drops_its_requests() {
    for work in WORK {
        let mut fixture = Fixture::new(&Limits::default());
        let (id, completer, token) = fixture.begin(work);
        fixture.part.process_released();
        assert!(
            !fixture.is_serving() && !fixture.part.cancel(id),
            "{work:?}"
        );
        assert_eq!(token.is_cancelled(), work == Kind::Cancellable);
        assert_eq!(fixture.complete(completer), None, "{work:?}");
    }
}

#[test]
fn a_completion_of_a_previous_process_does_not_answer_the_next_one() {
    for work in WORK {
        let mut fixture = Fixture::new(&Limits::default());
        let (id, previous, _token) = fixture.begin(work);
        fixture.part.process_released();
        // The next process reuses the request id.
        let (completer, _next_token) = fixture.part.begin(id, true, 8).unwrap();
        assert_eq!(fixture.complete(previous), None, "{work:?}");
        assert!(fixture.is_serving(), "{work:?}");
        assert_eq!(fixture.complete(completer), Some(id), "{work:?}");
    }
}

#[test]
fn the_bytes_of_waiting_file_requests_are_limited() {
    let limits = Limits {
        max_pending_write_bytes: 4096,
        max_file_requests: 2,
        ..Limits::default()
    };
    // (sizes of the requests in bytes, accepted)
    for (sizes, accepted) in [
        (&[4096][..], &[true][..]),
        (&[4097], &[false]),
        (&[2048, 2048, 2], &[true, true, false]),
        // A request uses whole KiB.
        (&[2, 1025, 1024, 2], &[true, true, true, false]),
        (&[1024, 4096, 3072], &[true, false, true]),
    ] {
        let fixture = Fixture::new(&limits);
        let permits: Vec<_> = sizes
            .iter()
            .map(|size| fixture.part.file_permits(&params(*size)))
            .collect();
        let found: Vec<bool> = permits.iter().map(Option::is_some).collect();
        assert_eq!(found, accepted, "{sizes:?}");
    }
}

#[test]
fn file_request_reserves_its_bytes_until_drop() {
    let limits = Limits {
        max_pending_write_bytes: 1024,
        ..Limits::default()
    };
    let mut fixture = Fixture::new(&limits);
    let permits = fixture.part.file_permits(&params(1024)).unwrap();
    fixture.part.process_released();
    assert!(
        fixture.part.file_permits(&params(2)).is_none(),
        "the work of the previous process continues"
    );
    drop(permits);
    assert!(fixture.part.file_permits(&params(1024)).is_some());
}

#[test]
fn the_files_in_progress_have_a_common_limit() {
    let limits = Limits {
        max_file_requests: 2,
        ..Limits::default()
    };
    let fixture = Fixture::new(&limits);
    let permits = [2, 2, 2].map(|size| fixture.part.file_permits(&params(size)).unwrap());
    let [first, second, third] = permits.map(|permits| permits.answers.try_acquire_owned());
    assert!(first.is_ok() && second.is_ok() && third.is_err());
    drop(first);
    assert!(
        fixture
            .part
            .file_permits(&params(2))
            .unwrap()
            .answers
            .try_acquire_owned()
            .is_ok()
    );
}

#[test]
fn a_limit_of_zero_or_the_maximum_is_valid() {
    for (max, accepted) in [(0, false), (usize::MAX, true)] {
        let limits = Limits {
            max_file_requests: max,
            max_pending_write_bytes: max,
            ..Limits::default()
        };
        let permits = Fixture::new(&limits).part.file_permits(&params(2));
        assert_eq!(
            permits.is_some_and(|permits| permits.answers.try_acquire_owned().is_ok()),
            accepted
        );
    }
}

#[test]
fn an_invalid_command_is_an_error_of_the_params() {
    let error = StartError::InvalidSpec("the command is empty".to_owned()).response();
    assert_eq!(
        error.get(),
        acp::error(error_code::INVALID_PARAMS, "the command is empty").get()
    );
}
