use super::*;

const V1: bool = true;
const V2: bool = false;

/// The result or the code of the agent's error.
type Outcome = Result<&'static str, i64>;

fn outcome(outcome: Outcome) -> Result<Box<RawValue>, RpcError> {
    outcome.map(raw).map_err(error)
}

#[test]
fn the_response_to_the_prompt_has_one_effect() {
    let end = Ok(r#"{"stopReason":"end_turn"}"#);
    let cancelled = error_code::REQUEST_CANCELLED;
    // (the response ends the turn, turn is cancelled, outcome, effect)
    for (version, is_cancelled, answer, expected) in [
        (V1, false, end, "completed end_turn"),
        (
            V1,
            true,
            Ok(r#"{"stopReason":"cancelled"}"#),
            "completed cancelled",
        ),
        (V1, true, end, "completed end_turn"),
        (
            V1,
            false,
            Ok(r#"{"stopReason":"_vendor"}"#),
            "completed _vendor",
        ),
        (V1, false, Ok("{}"), "failed -32603"),
        (V1, false, Ok("null"), "failed -32603"),
        (V1, true, Ok(r#"{"stopReason":1}"#), "failed -32603"),
        (V2, false, Ok("{}"), "none"),
        (V2, false, Ok("null"), "none"),
        (V2, false, end, "none"),
        (V2, true, Ok("{}"), "none"),
        (V1, false, Err(-32603), "failed -32603"),
        (V2, false, Err(-32603), "failed -32603"),
        (V1, false, Err(cancelled), "failed -32800"),
        (V1, true, Err(cancelled), "completed cancelled"),
        (V2, true, Err(cancelled), "completed cancelled"),
        (V1, true, Err(-32603), "failed -32603"),
        (V1, true, Err(-32002), "failed -32002"),
    ] {
        let mut fixture = if is_cancelled {
            Fixture::cancelled_at(0)
        } else {
            Fixture::sent()
        };
        let answered = fixture.turns.answered(outcome(answer), version);
        assert_eq!(
            named(answered),
            expected,
            "{version} {is_cancelled} {answer:?}"
        );
        assert_eq!(
            fixture.turns.running(),
            Some(prompt(1)),
            "only `take` ends a turn"
        );
    }
}

#[test]
fn a_response_without_a_turn_has_no_effect() {
    for version in [V1, V2] {
        let mut fixture = Fixture::new();
        let answered = fixture.turns.answered(outcome(Err(-32603)), version);
        assert_eq!(named(answered), "none");
    }
}

#[test]
fn a_completion_has_the_raw_result_and_its_usage() {
    let result = r#"{"stopReason":"max_tokens","usage":{"totalTokens":1.10}, "x":1}"#;
    let answered = Fixture::sent().turns.answered(Ok(raw(result)), V1);
    let Some(Ok(completion)) = answered else {
        panic!("the turn completes")
    };
    assert_eq!(completion.stop_reason, "max_tokens");
    assert_eq!(completion.result.get(), result);
    assert_eq!(completion.usage.unwrap().get(), r#"{"totalTokens":1.10}"#);
}

#[test]
fn the_completion_of_a_cancel_is_a_result_of_acp() {
    let Completion {
        stop_reason,
        result,
        usage,
    } = Completion::cancelled();
    assert_eq!(
        (stop_reason.as_str(), result.get()),
        ("cancelled", r#"{"stopReason":"cancelled"}"#)
    );
    assert!(usage.is_none());
}

#[test]
fn a_rejected_session_withdraws_the_prompt_for_a_second_send() {
    let mut fixture = Fixture::sent();
    let call = fixture.calls.register_call();
    fixture.turns.prompt_sent(Some(call), fixture.base);
    fixture.turns.prompt_withdrawn();
    assert!(
        !fixture.turns.is_prompt(call),
        "a late response belongs to no turn"
    );
    assert_eq!(
        fixture.turns.ready(1).unwrap().0.get(),
        r#"[{"type":"text","text":"1"}]"#
    );
    assert_eq!(
        (fixture.turns.running(), fixture.turns.sent()),
        (Some(prompt(1)), None)
    );
}

#[test]
fn a_withdrawn_prompt_loses_its_acknowledgement() {
    let mut fixture = Fixture::sent();
    fixture.acknowledge();
    fixture.turns.prompt_withdrawn();
    fixture.send();
    fixture.state(BUSY, 1);
    fixture.state(END_TURN, 2);
    assert_eq!(named(fixture.turns.work_end()), "none");
    fixture.acknowledge();
    assert_eq!(named(fixture.turns.work_end()), "completed end_turn");
}

#[test]
fn an_end_of_the_work_has_one_effect() {
    let error = r#"{"state":"idle","stopReason":"error","error":{"code":-32001,"message":"m"}}"#;
    // (last state, turn is cancelled, effect)
    for (state, is_cancelled, expected) in [
        (END_TURN, false, "completed end_turn"),
        (END_TURN, true, "completed end_turn"),
        (IDLE, false, "completed end_turn"),
        (IDLE, true, "completed cancelled"),
        (
            r#"{"state":"idle","stopReason":"cancelled"}"#,
            true,
            "completed cancelled",
        ),
        (
            r#"{"state":"idle","stopReason":"_vendor"}"#,
            false,
            "completed _vendor",
        ),
        (error, false, "failed -32001"),
        (error, true, "failed -32001"),
        (
            r#"{"state":"idle","stopReason":"error"}"#,
            false,
            "failed -32603",
        ),
    ] {
        let mut fixture = if is_cancelled {
            Fixture::cancelled_at(0)
        } else {
            Fixture::sent()
        };
        fixture.acknowledge();
        fixture.state(BUSY, 1);
        fixture.state(state, 2);
        assert_eq!(
            named(fixture.turns.work_end()),
            expected,
            "{state} {is_cancelled}"
        );
        assert_eq!(
            named(fixture.turns.work_end()),
            "none",
            "an end has one effect"
        );
    }
}

#[test]
fn the_end_of_the_work_has_its_usage_and_its_raw_update() {
    let mut fixture = Fixture::sent();
    let idle = r#"{"state":"idle","stopReason":"end_turn","usage":{"totalTokens":1.10}, "x":1}"#;
    fixture.acknowledge();
    fixture.state(idle, 1);
    let Some(Ok(completion)) = fixture.turns.work_end() else {
        panic!("the turn completes")
    };
    assert_eq!(completion.result.get(), idle);
    assert_eq!(completion.usage.unwrap().get(), r#"{"totalTokens":1.10}"#);
}
