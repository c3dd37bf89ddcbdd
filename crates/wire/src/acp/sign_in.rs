//! Detects errors that require a sign-in, and collects the secrets of a sign-in.

use serde_json::Value;
use serde_json::value::RawValue;

use super::method::error_code;
use super::raw_object::RawObject;
use crate::jsonrpc::RpcError;

/// Texts of agents and providers that report a missing sign-in, in lower case.
const PHRASES: &str = include_str!("sign_in_phrases.txt");
/// Kinds of failures in `data` that report a missing sign-in, and the members that contain a kind.
const KINDS: [&str; 5] = [
    "authentication_failed",
    "authentication_error",
    "auth_required",
    "invalid_api_key",
    "ProviderAuthError",
];
const KIND_MEMBERS: [&str; 6] = ["errorKind", "kind", "type", "code", "reason", "name"];
/// HTTP 401: the credentials are missing or wrong. Some agents use the provider's status as the error code.
const UNAUTHORIZED: i64 = 401;
/// The minimum length of a secret. Masking shorter texts would mask ordinary words.
const MIN_SECRET_LEN: usize = 8;

pub fn is_required(error: &RpcError) -> bool {
    match error.code {
        error_code::AUTH_REQUIRED | UNAUTHORIZED => true,
        // These codes refer to the call itself.
        error_code::PARSE
        | error_code::INVALID_REQUEST
        | error_code::METHOD_NOT_FOUND
        | error_code::INVALID_PARAMS
        | error_code::RESOURCE_NOT_FOUND
        | error_code::REQUEST_CANCELLED => false,
        _ => {
            let text = error.searchable();
            let kind = |name: &str| {
                let kind = error.data_text(name);
                kind.is_some_and(|kind| KINDS.contains(&&*kind))
            };
            PHRASES.lines().any(|phrase| text.contains(phrase))
                || KIND_MEMBERS.into_iter().any(kind)
        }
    }
}

/// Collects the secrets in the params of `authenticate`: every longer text in `_meta`.
pub fn secrets_of(params: &RawValue) -> Vec<String> {
    let mut texts = Vec::new();
    let meta = RawObject::parse(params)
        .and_then(|params| serde_json::from_str(params.get("_meta")?.get()).ok());
    collect_strings(&meta.unwrap_or_default(), &mut texts);
    texts
}

fn collect_strings(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) if text.len() >= MIN_SECRET_LEN => texts.push(text.clone()),
        Value::Array(items) => {
            for item in items {
                collect_strings(item, texts);
            }
        }
        Value::Object(members) => {
            for item in members.values() {
                collect_strings(item, texts);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::auth::{api_key_meta, authenticate};
    use super::*;
    use crate::acp::known_agents::ApiKeyFormat;

    #[test]
    fn a_missing_sign_in_is_recognized_by_code_text_and_kind() {
        let required = |code: i64, message: &str, data: &str| {
            let data = (!data.is_empty()).then(|| RawValue::from_string(data.to_owned()).unwrap());
            is_required(&RpcError {
                code,
                message: message.to_owned(),
                data,
            })
        };
        assert!(required(-32000, "anything", ""));
        assert!(required(401, "no", ""));
        assert!(required(
            -32603,
            "Internal error",
            r#"{"details":"Missing API key for mistral"}"#
        ));
        assert!(required(-32603, "Invalid API key · Please run /login", ""));
        assert!(required(
            -32603,
            "Internal error: no",
            r#"{"errorKind":"authentication_failed"}"#
        ));
        assert!(!required(-32603, "Internal error", ""));
        assert!(
            !required(-32602, "missing api key", ""),
            "the error refers to the call"
        );
        assert!(!required(
            -32603,
            "Internal error",
            r#"{"details":"overloaded"}"#
        ));
    }

    #[test]
    fn every_longer_text_in_meta_is_a_secret() {
        let secrets = |format| {
            secrets_of(&authenticate(
                "a",
                Some(&api_key_meta(format, "K-12345678\"")),
            ))
        };
        assert_eq!(secrets(ApiKeyFormat::String), ["K-12345678\""]);
        assert_eq!(secrets(ApiKeyFormat::Object), ["K-12345678\""]);
        assert!(secrets_of(&authenticate("a-long-method-id", None)).is_empty());
    }
}
