//! JSON-RPC messages, and changes of their members.

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use wire::acp::{self, RawObject, error_code, to_raw};
use wire::jsonrpc::{self, RpcError};

/// The error that replaces an answer of the editor, because the agent waits for one.
pub(super) fn failed_answer(reason: &str) -> RpcError {
    let reason = format!("the answer of the editor did not reach the agent: {reason}");
    RpcError::new(error_code::INTERNAL, reason)
}

/// A request with an id of the bridge, or a notification, as a body.
pub(super) fn call(id: Option<&str>, method: &str, params: &RawValue) -> Bytes {
    let line = match id {
        Some(id) => jsonrpc::request(serde_json::Value::from(id), method, params),
        None => jsonrpc::notification(method, params),
    };
    jsonrpc::without_line_end(&line)
}

/// The object with the value of one member replaced. All members keep their order, and the other values their bytes.
pub(super) fn with_value(object: &RawObject<'_>, own: &str, value: &RawValue) -> Box<RawValue> {
    let members = object.iter().map(|(name, other)| {
        let value = if name == own { value } else { other };
        (name, value.to_owned())
    });
    acp::object(&members.collect::<Vec<_>>())
}

/// The member of `_meta` that belongs to the gateway.
pub(super) const META: &str = "acp-gateway";

/// The member of `_meta` for terminal methods in editors that precede the capability of ACP.
const TERMINAL_AUTH: &str = "terminal-auth";

/// The params of `initialize` with the name of the bridge. If the editor runs terminal methods of sign-ins, this asks the
/// gateway for them.
pub(super) fn with_client(params: &RawObject<'_>, client: &str) -> Box<RawValue> {
    let meta = params.object("_meta").unwrap_or_else(RawObject::empty);
    let own = meta.object(META).unwrap_or_else(RawObject::empty);
    let mut members = vec![("client", to_raw(client))];
    if runs_terminal_methods(params) {
        members.push(("terminalSignIn", to_raw(&true)));
    }
    let meta = meta.with_members(&[(META, own.with_members(&members))]);
    params.with_members(&[("_meta", meta)])
}

/// Whether the editor runs terminal methods: with the capability of ACP, or with the older one in `_meta`.
fn runs_terminal_methods(params: &RawObject<'_>) -> bool {
    let Some(capabilities) = params.object("clientCapabilities") else {
        return false;
    };
    let is_true = |object: Option<RawObject<'_>>, name: &str| {
        object.is_some_and(|object| object.get(name).is_some_and(|value| value.get() == "true"))
    };
    is_true(capabilities.object("auth"), "terminal")
        || is_true(capabilities.object("_meta"), TERMINAL_AUTH)
}

/// Changes the terminal sign-in methods in the result of `initialize`, so that they run the command `sign_in`. Its
/// first word is the program. Editors append `args` to the agent's command. Editors with the older capability read the
/// whole command from `_meta`.
pub(super) fn with_sign_in(result: Box<RawValue>, sign_in: &[String]) -> Box<RawValue> {
    let Some(object) = RawObject::parse(&result) else {
        return result;
    };
    let methods = object.get("authMethods");
    let methods = methods.and_then(|methods| serde_json::from_str(methods.get()).ok());
    let methods: Vec<&RawValue> = methods.unwrap_or_default();
    let rewritten = methods.into_iter().map(|raw_method| {
        let method = RawObject::parse(raw_method);
        let method = method.filter(|method| method.text("type").as_deref() == Some("terminal"));
        let id = method.as_ref().and_then(|method| method.text("id"));
        let (Some(method), Some(id), Some((program, words))) = (&method, id, sign_in.split_first())
        else {
            return raw_method.to_owned();
        };
        let args = ["sign-in", "--method", &*id];
        let all: Vec<&str> = words.iter().map(String::as_str).chain(args).collect();
        let label = method.text("name").unwrap_or_default();
        let command = json!({ "label": label, "command": program, "args": all, "env": {} });
        let meta = to_raw(&json!({ TERMINAL_AUTH: command }));
        method.with_members(&[("args", to_raw(&args)), ("_meta", meta)])
    });
    let rewritten: Vec<Box<RawValue>> = rewritten.collect();
    if rewritten.is_empty() {
        return result.clone();
    }
    object.with_members(&[("authMethods", to_raw(&rewritten))])
}

pub(super) fn gateway_meta(result: &RawValue, name: &str) -> Option<String> {
    let own = RawObject::parse(result)?.object("_meta")?.object(META)?;
    own.text(name).map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn members_are_replaced_and_others_keep_their_bytes() {
        let params =
            object(r#"{"a":1.10,"_meta":{"x":1,"acp-gateway":{"client":"me","y":2}},"b":"é"}"#);
        let changed = with_client(&RawObject::parse(&params).unwrap(), "bridge");
        let expected =
            r#"{"a":1.10,"b":"é","_meta":{"x":1,"acp-gateway":{"y":2,"client":"bridge"}}}"#;
        assert_eq!(changed.get(), expected);
        assert_eq!(gateway_meta(&changed, "client").as_deref(), Some("bridge"));
        let empty = with_client(&RawObject::empty(), "bridge");
        assert_eq!(
            empty.get(),
            r#"{"_meta":{"acp-gateway":{"client":"bridge"}}}"#
        );
    }

    #[test]
    fn errors_keep_data_that_other_parsers_reject() {
        let error = RpcError {
            code: 1,
            message: "x".to_owned(),
            data: Some(object(r#"[1e999,"\ud800"]"#)),
        };
        let line = jsonrpc::error(&object("7"), &error);
        let line = std::str::from_utf8(&line).unwrap();
        assert!(
            line.contains(r#""error":{"code":1,"message":"x","data":[1e999,"\ud800"]}"#),
            "{line}"
        );
    }

    #[test]
    fn terminal_methods_run_the_sign_in_of_the_bridge() {
        let methods = r#"[{"id":"a","name":"A"},{"type":"terminal","id":"t","name":"T"}]"#;
        let result = object(&format!(
            r#"{{"authMethods":{methods},"protocolVersion":1}}"#
        ));
        let command = ["/bin/acp-gateway", "attach", "--agent", "x"].map(str::to_owned);
        let changed: serde_json::Value =
            serde_json::from_str(with_sign_in(result, &command).get()).unwrap();
        assert_eq!(changed["authMethods"][0], json!({ "id": "a", "name": "A" }));
        let args = ["attach", "--agent", "x", "sign-in", "--method", "t"];
        let terminal =
            json!({ "label": "T", "command": "/bin/acp-gateway", "args": args, "env": {} });
        let expected = json!({ "type": "terminal", "id": "t", "name": "T", "args": args[3..],
            "_meta": { "terminal-auth": terminal } });
        assert_eq!(changed["authMethods"][1], expected);
        let none = object(r#"{"protocolVersion":1}"#);
        assert_eq!(with_sign_in(none.clone(), &command).get(), none.get());
    }

    #[test]
    fn terminal_methods_are_requested_for_editors_that_run_them() {
        for (capabilities, asks) in [
            (r#"{"auth":{"terminal":true}}"#, true),
            (r#"{"_meta":{"terminal-auth":true}}"#, true),
            (r#"{"auth":{"terminal":false}}"#, false),
            ("{}", false),
        ] {
            let params = object(&format!(r#"{{"clientCapabilities":{capabilities}}}"#));
            let changed = with_client(&RawObject::parse(&params).unwrap(), "bridge");
            assert_eq!(
                changed.get().contains(r#""terminalSignIn":true"#),
                asks,
                "{capabilities}"
            );
        }
    }
}
