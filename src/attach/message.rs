//! JSON-RPC messages, and changes of their members.

use bytes::Bytes;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::acp::RawObject;
use crate::jsonrpc::{self, RpcError};

/// Encodes one of the bridge's own values.
pub(super) fn raw(value: &(impl serde::Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("the bridge's own values have string keys and serialize")
}

pub(super) fn rpc_error(code: i64, message: impl Into<String>) -> RpcError {
    RpcError { code, message: message.into(), data: None }
}

/// A response as one line.
pub(super) fn response(id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) -> Bytes {
    match outcome {
        Ok(result) => jsonrpc::result(id, result),
        Err(RpcError { code, message, data: Some(data) }) => {
            jsonrpc::error(id, &raw(&json!({ "code": code, "message": message, "data": data })))
        }
        Err(RpcError { code, message, data: None }) => {
            jsonrpc::error(id, &raw(&json!({ "code": code, "message": message })))
        }
    }
}

/// A request with an id of the bridge, or a notification. Absent params stay absent.
pub(super) fn call(id: Option<&str>, method: &str, params: &RawValue) -> Bytes {
    let method = serde_json::Value::from(method);
    let id = id.map_or_else(String::new, |id| format!(r#""id":"{id}","#));
    let params = if params.get() == "null" { String::new() } else { format!(r#","params":{params}"#) };
    format!(r#"{{"jsonrpc":"2.0",{id}"method":{method}{params}}}"#).into()
}

/// The object with these members added or replaced. The other members keep their bytes and their order.
pub(super) fn with_members(object: &RawObject<'_>, members: &[(&str, Box<RawValue>)]) -> Box<RawValue> {
    let others = object.iter().filter(|(name, _)| members.iter().all(|(own, _)| own != name));
    let own = members.iter().map(|(name, value)| (*name, &**value));
    let members: Vec<_> =
        others.chain(own).map(|(name, value)| format!("{}:{value}", serde_json::Value::from(name))).collect();
    RawValue::from_string(format!("{{{}}}", members.join(","))).expect("names and values are JSON")
}

/// The member of `_meta` that belongs to the gateway.
pub(super) const META: &str = "acp-gateway";

/// The params of `initialize` with the name of the bridge.
pub(super) fn with_client(params: &RawObject<'_>, client: &str) -> Box<RawValue> {
    let meta = params.object("_meta").unwrap_or_else(RawObject::empty);
    let own = meta.object(META).unwrap_or_else(RawObject::empty);
    let own = with_members(&own, &[("client", raw(client))]);
    with_members(params, &[("_meta", with_members(&meta, &[(META, own)]))])
}

/// A text in the gateway's member of a result's `_meta`.
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
        let params = object(r#"{"a":1.10,"_meta":{"x":1,"acp-gateway":{"client":"me","y":2}},"b":"é"}"#);
        let changed = with_client(&RawObject::parse(&params).unwrap(), "bridge");
        let expected = r#"{"a":1.10,"b":"é","_meta":{"x":1,"acp-gateway":{"y":2,"client":"bridge"}}}"#;
        assert_eq!(changed.get(), expected);
        assert_eq!(gateway_meta(&changed, "client").as_deref(), Some("bridge"));
        let empty = with_client(&RawObject::empty(), "bridge");
        assert_eq!(empty.get(), r#"{"_meta":{"acp-gateway":{"client":"bridge"}}}"#);
    }

    #[test]
    fn absent_params_stay_absent() {
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text(call(None, "a\"b", RawValue::NULL)), r#"{"jsonrpc":"2.0","method":"a\"b"}"#);
        let params = object("{}");
        let expected = r#"{"jsonrpc":"2.0","id":"b-1","method":"m","params":{}}"#;
        assert_eq!(text(call(Some("b-1"), "m", &params)), expected);
    }
}
