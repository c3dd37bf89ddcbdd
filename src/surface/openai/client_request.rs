//! Checks that both protocols share: repeated requests, forced tools and forms of the answer.

use http::HeaderMap;
use serde_json::Value;

use crate::surface::rest::ApiError;

/// The number of repetitions of a request by the SDKs.
const RETRY_COUNT: &str = "x-stainless-retry-count";

/// Whether an SDK repeats a request that failed.
pub(super) fn is_retry(headers: &HeaderMap) -> bool {
    let count = headers
        .get(RETRY_COUNT)
        .and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    count.is_some_and(|count| count > 0)
}

/// Rejects a choice that makes the client wait for a call of its own tool.
pub(super) fn reject_forced_tool(choice: Option<&Value>, pointer: &str) -> Result<(), ApiError> {
    let forced = match choice {
        Some(Value::String(choice)) => choice == "required",
        Some(Value::Object(_)) => true,
        _ => false,
    };
    if forced {
        let detail = "an agent runs its own tools and cannot call those of the client; leave this member out";
        return Err(ApiError::invalid(pointer, detail));
    }
    Ok(())
}

/// Rejects a form of the answer that ACP cannot ask for. The client would parse the text of the agent as this form.
pub(super) fn reject_format(format: Option<&Value>, pointer: &str) -> Result<(), ApiError> {
    let kind = format.and_then(|format| format["type"].as_str());
    if kind.is_some_and(|kind| kind != "text") {
        let detail =
            "an agent answers in text; leave the format out, and describe the form in the message";
        return Err(ApiError::invalid(pointer, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forced_tools_are_rejected() {
        for (choice, permitted) in [
            (json!("auto"), true),
            (json!("required"), false),
            (json!({ "type": "function" }), false),
        ] {
            assert_eq!(
                reject_forced_tool(Some(&choice), "").is_ok(),
                permitted,
                "{choice}"
            );
        }
        assert!(reject_forced_tool(None, "").is_ok());
    }
}
