use super::*;
use crate::session::command::Answer;
use crate::session::error::{AnswerError, InputError};
use crate::session::requests::answers::check_answer;

const FORM: &str = r#"{"sessionId":"s","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}"#;

fn asked(method: &str) -> PendingRequest {
    PendingRequest {
        request_id: RequestId::new(7),
        method: method.to_owned(),
        params: raw(if method == ELICITATION { FORM } else { OPTIONS }),
        prompt_id: None,
        subagent: None,
        acp_client: None,
        created_at: Timestamp::from_millis(0),
        deadline: None,
    }
}

/// The response for the agent, or the error for the client.
fn checked(method: &str, answer: Answer) -> String {
    match check_answer(&asked(method), answer) {
        Ok(outcome) => response(&outcome),
        Err(AnswerError::Input(InputError::Invalid(errors))) => {
            format!("invalid {}", errors[0].pointer)
        }
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn an_option_answers_a_permission_request_that_offers_it() {
    let option = |id: &str| Answer::Option(id.to_owned());
    for (method, id, expected) in [
        (PERMISSION, "no", SELECTED_NO),
        (PERMISSION, "other", "invalid /optionId"),
        (ELICITATION, "no", "invalid "),
        (READ, "no", "invalid "),
        (EXTENSION, "no", "invalid "),
    ] {
        assert_eq!(checked(method, option(id)), expected, "{method} {id}");
    }
}

#[test]
fn a_client_cancels_only_a_permission_request() {
    for (method, expected) in [
        (PERMISSION, NONE_SELECTED),
        (ELICITATION, "invalid "),
        (READ, "invalid "),
        (EXTENSION, "invalid "),
    ] {
        assert_eq!(checked(method, Answer::Cancelled), expected, "{method}");
    }
}

#[test]
fn an_answer_on_the_wrong_route_names_the_route() {
    for (method, route) in [
        (PERMISSION, "permissions/r7"),
        (ELICITATION, "elicitations/r7"),
        (READ, "requests/r7"),
        (EXTENSION, "requests/r7"),
    ] {
        let answer = if method == ELICITATION {
            Answer::Cancelled
        } else {
            Answer::Elicitation(raw("{}"))
        };
        let Err(error @ AnswerError::Input(InputError::Invalid(_))) =
            check_answer(&asked(method), answer)
        else {
            panic!("{method} has another route")
        };
        assert!(error.to_string().contains(route), "{error}");
    }
}

#[test]
fn a_result_matches_its_request() {
    let accepted = r#"{"action":"accept","content":{"a":"b"}}"#;
    // (method, result, response or error)
    for (method, result, expected) in [
        (PERMISSION, SELECTED_NO, SELECTED_NO),
        (PERMISSION, NONE_SELECTED, NONE_SELECTED),
        (
            PERMISSION,
            r#"{"outcome":{"outcome":"selected","optionId":"x"}}"#,
            "invalid /result",
        ),
        (PERMISSION, "{}", "invalid /result"),
        (ELICITATION, accepted, accepted),
        (ELICITATION, CANCELLED_FORM, CANCELLED_FORM),
        (READ, r#"{"content":"text"}"#, r#"{"content":"text"}"#),
        (READ, r#"{"content":1}"#, "invalid /result/content"),
        (READ, "null", "invalid /result"),
        (
            WAIT_FOR_EXIT,
            r#"{"exitCode":-1}"#,
            "invalid /result/exitCode",
        ),
        // The gateway does not know the method, so every result passes.
        (EXTENSION, "[1, 2]", "[1, 2]"),
        (EXTENSION, "null", "null"),
    ] {
        assert_eq!(
            checked(method, Answer::Result(raw(result))),
            expected,
            "{method} {result}"
        );
    }
}

#[test]
fn the_answer_to_an_elicitation_has_pointers_without_a_prefix() {
    let accepted = r#"{"action":"accept","content":{"a":"b"}}"#;
    assert_eq!(
        checked(ELICITATION, Answer::Elicitation(raw(accepted))),
        accepted
    );
    let wrong = || raw(r#"{"action":"accept","content":{"a":1}}"#);
    assert_eq!(
        checked(ELICITATION, Answer::Elicitation(wrong())),
        "invalid /content/a"
    );
    assert_eq!(
        checked(ELICITATION, Answer::Result(wrong())),
        "invalid /result/content/a"
    );
}

#[test]
fn an_error_has_a_code_and_a_message() {
    for (error, expected) in [
        (r#"{"code":-32001,"message":"m"}"#, "error -32001"),
        (r#"{"code":1,"message":"m","data":[1]}"#, "error 1"),
        (r#"{"code":"1","message":"m"}"#, "invalid /error"),
        (r#"{"code":1.5,"message":"m"}"#, "invalid /error"),
        (r#"{"code":1}"#, "invalid /error"),
        (r#"{"message":"m"}"#, "invalid /error"),
        ("null", "invalid /error"),
    ] {
        for method in [PERMISSION, READ, EXTENSION] {
            assert_eq!(
                checked(method, Answer::Error(raw(error))),
                expected,
                "{method} {error}"
            );
        }
    }
}

#[test]
fn an_answer_becomes_one_line() {
    let result = "{\"content\":\n\"a\"}";
    assert!(!checked(READ, Answer::Result(raw(result))).contains('\n'));
    let error = "{\"code\":1,\n\"message\":\"m\"}";
    let Ok(Err(error)) = check_answer(&asked(READ), Answer::Error(raw(error))) else {
        panic!("the error is valid")
    };
    assert!(!error.get().contains('\n'));
}
