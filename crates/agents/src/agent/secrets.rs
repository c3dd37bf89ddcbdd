//! The secrets of an agent, which are masked in its errors and its stderr.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use base::shutdown::lock_or_abort;
use children::masked;
use wire::jsonrpc::RpcError;

/// Shorter lines of a secret are common words.
const MIN_LINE_BYTES: usize = 8;

/// The values that one process received, in its environment or in a sign-in. A cheap handle.
#[derive(Clone, derive_more::Debug)]
#[debug("Secrets")]
pub(super) struct Secrets(Arc<Mutex<Vec<String>>>);

impl Secrets {
    pub(super) fn new(secrets: &[String]) -> Self {
        Self(Arc::new(Mutex::new(with_lines(secrets.to_vec()))))
    }

    pub(super) fn add(&self, secrets: Vec<String>) {
        lock_or_abort(self.0.lock()).extend(with_lines(secrets));
    }

    pub(super) fn mask(&self, text: &str) -> String {
        masked(text, &lock_or_abort(self.0.lock()))
    }

    pub(super) fn mask_error(&self, error: RpcError) -> RpcError {
        without_secrets(error, &lock_or_abort(self.0.lock()))
    }
}

/// Adds the lines of secrets with several lines, because the output of an agent is masked line by line.
fn with_lines(mut secrets: Vec<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for secret in secrets.iter().filter(|secret| secret.contains('\n')) {
        let lines_of_secret = secret.lines().map(str::trim);
        let long = lines_of_secret.filter(|line| line.len() >= MIN_LINE_BYTES);
        lines.extend(long.map(str::to_owned));
    }
    secrets.extend(lines);
    secrets
}

/// Masks the secrets in an error, also in `data`.
pub fn without_secrets(error: RpcError, secrets: &[String]) -> RpcError {
    if secrets.is_empty() {
        return error;
    }
    let data = error.data.and_then(|data| masked_json(data, secrets));
    RpcError {
        code: error.code,
        message: masked(&error.message, secrets),
        data,
    }
}

/// `None` if a secret cannot be masked without damage to the JSON.
fn masked_json(data: Box<RawValue>, secrets: &[String]) -> Option<Box<RawValue>> {
    // A JSON string may contain escapes, so the search needs the decoded values.
    let Ok(value) = serde_json::from_str::<Value>(data.get()) else {
        // For example, a lone surrogate.
        let shown = masked(data.get(), secrets);
        return if shown == data.get() {
            Some(data)
        } else {
            RawValue::from_string(shown).ok()
        };
    };
    let shown = mask_strings(&value, secrets);
    if shown == value {
        Some(data)
    } else {
        to_raw_value(&shown).ok()
    }
}

fn mask_strings(value: &Value, secrets: &[String]) -> Value {
    match value {
        Value::String(text) => masked(text, secrets).into(),
        Value::Array(items) => {
            let items = items.iter();
            items.map(|item| mask_strings(item, secrets)).collect()
        }
        Value::Object(members) => {
            let shown = |(name, member): (&String, &Value)| {
                (masked(name, secrets), mask_strings(member, secrets))
            };
            members.iter().map(shown).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_in_every_part_of_an_error() {
        let secrets = ["hunter2-key".to_owned()];
        let error = |message: &str, data: &str| {
            let data = Some(RawValue::from_string(data.to_owned()).unwrap());
            let error = RpcError {
                code: -1,
                message: message.to_owned(),
                data,
            };
            let RpcError { message, data, .. } = without_secrets(error, &secrets);
            (message, data.map(|data| data.get().to_owned()))
        };
        let masked = |data: &str| error("no", data).1;
        assert_eq!(
            error("bad hunter2-key", "1.10"),
            ("bad [secret]".to_owned(), Some("1.10".to_owned()))
        );
        assert_eq!(
            masked(r#"{"a":["x hunter2-key"]}"#).unwrap(),
            r#"{"a":["x [secret]"]}"#
        );
        assert_eq!(
            masked(r#"{"\u0068unter2-key":1}"#).unwrap(),
            r#"{"[secret]":1}"#
        );
        assert_eq!(
            masked(r#"["\ud800 hunter2-key"]"#).unwrap(),
            r#"["\ud800 [secret]"]"#
        );
        assert_eq!(
            masked(r#"{ "n": 1.10, "s": "\ud800" }"#).unwrap(),
            r#"{ "n": 1.10, "s": "\ud800" }"#
        );
    }
}
