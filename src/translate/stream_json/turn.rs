//! The end of a turn: the line `result` of the CLI as the response to `session/prompt`.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::acp::{error_code, stop_reason};
use crate::jsonrpc::RpcError;
use crate::translate::message::{error, to_raw};
use crate::translate::object::{LineError, Object};

/// The context window of a model that the CLI does not report.
const DEFAULT_WINDOW: u64 = 200_000;

/// The running turn, and what its end reports.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The client has cancelled the turn.
    pub(super) cancelled: bool,
    /// The agent has written text in this turn.
    pub(super) has_text: bool,
    /// The kind of the last error of the model API.
    pub(super) api_error: Option<String>,
    /// The tokens of the last request to the model.
    pub(super) context_tokens: Option<u64>,
}

impl Turn {
    /// The response to the prompt.
    pub(super) fn outcome(&self, result: &Object<'_>) -> Result<Box<RawValue>, RpcError> {
        match self.stop_reason(result) {
            Ok(Ok(reason)) => Ok(to_raw(
                &json!({ "stopReason": reason, "usage": usage(result) }),
            )),
            Ok(Err(error)) => Err(error),
            // The turn has ended, but its result is not known.
            Err(missing) => Err(error(
                error_code::INTERNAL,
                format!("Internal error: {missing}"),
            )),
        }
    }

    fn stop_reason(
        &self,
        result: &Object<'_>,
    ) -> Result<Result<&'static str, RpcError>, LineError> {
        let aborted = result
            .text("terminal_reason")
            .is_some_and(|reason| reason.starts_with("aborted"));
        if self.cancelled || aborted {
            return Ok(Ok(stop_reason::CANCELLED));
        }
        let subtype = result.required_text("subtype")?;
        let is_error = result.required("is_error")?.get() == "true";
        let stopped = result.text("stop_reason");
        Ok(match (&*subtype, stopped.as_deref()) {
            (_, Some("refusal")) => Ok("refusal"),
            (_, Some("max_tokens")) => Ok("max_tokens"),
            (_, _) if is_error => Err(self.failure(result, &subtype)),
            (
                "error_max_turns" | "error_max_budget_usd" | "error_max_structured_output_retries",
                _,
            ) => Ok("max_turn_requests"),
            _ => Ok(stop_reason::END_TURN),
        })
    }

    fn failure(&self, result: &Object<'_>, subtype: &str) -> RpcError {
        let text = result.text("result").filter(|text| !text.is_empty());
        let detail = text.map_or_else(
            || errors(result).unwrap_or_else(|| subtype.to_owned()),
            Cow::into_owned,
        );
        if self.api_error.as_deref() == Some("authentication_failed")
            || detail.contains("Please run /login")
        {
            return error(
                error_code::AUTH_REQUIRED,
                format!("Authentication required: {detail}"),
            );
        }
        let data =
            json!({ "errorKind": self.api_error, "status": result.number("api_error_status") });
        RpcError {
            data: Some(to_raw(&data)),
            ..error(error_code::INTERNAL, format!("Internal error: {detail}"))
        }
    }

    /// The update with the size of the context and the cost.
    pub(super) fn usage_update(&self, result: &Object<'_>) -> Option<Value> {
        let used = self.context_tokens?;
        let windows = result
            .object("modelUsage")
            .into_iter()
            .flat_map(|models| models.objects());
        let size = windows
            .filter_map(|model| model.number("contextWindow"))
            .max()
            .unwrap_or(DEFAULT_WINDOW);
        let cost: Option<f64> = result
            .get("total_cost_usd")
            .and_then(|cost| cost.get().parse().ok());
        let cost = cost.map(|amount| json!({ "amount": amount, "currency": "USD" }));
        Some(json!({ "sessionUpdate": "usage_update", "used": used, "size": size, "cost": cost }))
    }
}

/// The texts of the member `errors`.
pub(super) fn errors(result: &Object<'_>) -> Option<String> {
    let errors: Vec<String> = serde_json::from_str(result.get("errors")?.get()).ok()?;
    (!errors.is_empty()).then(|| errors.join(", "))
}

/// All tokens of a request to the model.
pub(super) fn total_tokens(usage: &Object<'_>) -> u64 {
    let members = [
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    ];
    members
        .iter()
        .filter_map(|member| usage.number(member))
        .fold(0, u64::saturating_add)
}

/// The `usage` of the response to a prompt.
fn usage(result: &Object<'_>) -> Option<Value> {
    let usage = result.object("usage")?;
    let tokens = |member| usage.number(member).unwrap_or_default();
    Some(json!({
        "totalTokens": total_tokens(&usage),
        "inputTokens": tokens("input_tokens"),
        "outputTokens": tokens("output_tokens"),
        "cachedReadTokens": tokens("cache_read_input_tokens"),
        "cachedWriteTokens": tokens("cache_creation_input_tokens"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(turn: &Turn, result: &str) -> Result<String, RpcError> {
        let raw = RawValue::from_string(result.to_owned()).unwrap();
        let outcome = turn.outcome(&Object::parse("result", &raw).unwrap())?;
        let outcome: Value = serde_json::from_str(outcome.get()).unwrap();
        Ok(outcome["stopReason"].as_str().unwrap().to_owned())
    }

    #[test]
    fn result_has_a_stop_reason() {
        for (result, reason) in [
            (
                r#"{"subtype":"success","is_error":false,"stop_reason":"end_turn"}"#,
                "end_turn",
            ),
            (
                r#"{"subtype":"success","is_error":false,"stop_reason":"max_tokens"}"#,
                "max_tokens",
            ),
            (
                r#"{"subtype":"success","is_error":true,"stop_reason":"refusal"}"#,
                "refusal",
            ),
            (
                r#"{"subtype":"error_max_turns","is_error":false}"#,
                "max_turn_requests",
            ),
            (
                r#"{"subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}"#,
                "cancelled",
            ),
        ] {
            assert_eq!(
                outcome(&Turn::default(), result).unwrap(),
                reason,
                "{result}"
            );
        }
        let cancelled = Turn {
            cancelled: true,
            ..Turn::default()
        };
        assert_eq!(
            outcome(&cancelled, r#"{"subtype":"success","is_error":false}"#).unwrap(),
            "cancelled"
        );
    }

    #[test]
    fn error_of_the_model_api_fails_the_prompt() {
        let result = r#"{"subtype":"success","is_error":true,"api_error_status":400,"result":"API Error: 400 mock"}"#;
        let failed = outcome(&Turn::default(), result).unwrap_err();
        assert_eq!(
            (failed.code, &*failed.message),
            (-32603, "Internal error: API Error: 400 mock")
        );
        let failed = outcome(
            &Turn::default(),
            r#"{"subtype":"error_during_execution","is_error":true,"errors":["one","two"]}"#,
        );
        assert_eq!(failed.unwrap_err().message, "Internal error: one, two");
        let turn = Turn {
            api_error: Some("authentication_failed".to_owned()),
            ..Turn::default()
        };
        assert_eq!(
            outcome(&turn, result).unwrap_err().code,
            error_code::AUTH_REQUIRED
        );
    }

    #[test]
    fn result_without_a_member_fails_the_prompt_with_the_name_of_the_member() {
        let missing = |result: &str| outcome(&Turn::default(), result).unwrap_err().message;
        assert_eq!(
            missing("{}"),
            "Internal error: `result` has no valid member `subtype`"
        );
        assert_eq!(
            missing(r#"{"subtype":"success"}"#),
            "Internal error: `result` has no valid member `is_error`"
        );
    }
}
