//! The end of a turn.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::translate::message::{Object, internal};
use wire::acp::{error_code, stop_reason, to_raw};
use wire::jsonrpc::RpcError;

/// The context window of a model that the CLI does not report.
const DEFAULT_WINDOW: u64 = 200_000;

#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) cancelled: bool,
    pub(super) has_text: bool,
    pub(super) api_error: Option<String>,
    pub(super) context_tokens: Option<u64>,
}

impl Turn {
    pub(super) fn outcome(&self, result: &Object<'_>) -> Result<Box<RawValue>, RpcError> {
        let reason = self.stop_reason(result)?;
        Ok(to_raw(
            &json!({ "stopReason": reason, "usage": usage(result) }),
        ))
    }

    /// Without a required member, the turn has ended, but its result is not known.
    fn stop_reason(&self, result: &Object<'_>) -> Result<&'static str, RpcError> {
        let reason = result.text("terminal_reason");
        let aborted = reason.is_some_and(|reason| reason.starts_with("aborted"));
        if self.cancelled || aborted {
            return Ok(stop_reason::CANCELLED);
        }
        let subtype = result.required_text("subtype").map_err(internal)?;
        let is_error = result.required("is_error").map_err(internal)?.get() == "true";
        let stopped = result.text("stop_reason");
        match (stopped.as_deref(), &*subtype) {
            (Some("refusal"), _) => Ok("refusal"),
            (Some("max_tokens"), _) => Ok("max_tokens"),
            _ if is_error => Err(self.failure(result, &subtype)),
            (
                _,
                "error_max_turns" | "error_max_budget_usd" | "error_max_structured_output_retries",
            ) => Ok("max_turn_requests"),
            _ => Ok(stop_reason::END_TURN),
        }
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
            let detail = format!("Authentication required: {detail}");
            return RpcError::new(error_code::AUTH_REQUIRED, detail);
        }
        let data =
            json!({ "errorKind": self.api_error, "status": result.number("api_error_status") });
        RpcError {
            data: Some(to_raw(&data)),
            ..internal(detail)
        }
    }

    pub(super) fn usage_update(&self, result: &Object<'_>) -> Option<Value> {
        let used = self.context_tokens?;
        let models = result.object("modelUsage").map(|models| models.objects());
        let models = models.iter().flatten();
        let windows = models.filter_map(|model| model.number("contextWindow"));
        let size = windows.max().unwrap_or(DEFAULT_WINDOW);
        let cost = result.get("total_cost_usd");
        let cost: Option<f64> = cost.and_then(|cost| cost.get().parse().ok());
        let cost = cost.map(|amount| json!({ "amount": amount, "currency": "USD" }));
        Some(json!({ "sessionUpdate": "usage_update", "used": used, "size": size, "cost": cost }))
    }
}

pub(super) fn errors(result: &Object<'_>) -> Option<String> {
    let errors: Vec<String> = serde_json::from_str(result.get("errors")?.get()).ok()?;
    (!errors.is_empty()).then(|| errors.join(", "))
}

pub(super) fn total_tokens(usage: &Object<'_>) -> u64 {
    let members = [
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    ];
    let numbers = members.iter().filter_map(|member| usage.number(member));
    numbers.fold(0, u64::saturating_add)
}

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
