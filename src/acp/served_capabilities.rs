//! The capabilities that the gateway offers to ACP clients for an agent.

use serde_json::value::RawValue;

use super::raw_object::RawObject;

/// The methods of a session that the gateway serves from its own log, for every agent.
const SESSION_METHODS: [&str; 4] = ["list", "resume", "close", "delete"];

/// The `agentCapabilities` of a v1 agent for clients of the gateway. Every agent can load, list, resume, close and delete
/// sessions, because the gateway has their logs. `mcp`: the client may bring MCP servers. `attach`: the roles of the draft of
/// `session/attach`, for a client that has asked for it. Other members stay unchanged.
pub fn served_capabilities(
    agent: &RawValue,
    fork: bool,
    mcp: bool,
    attach: &[&str],
) -> Box<RawValue> {
    let object = RawObject::parse(agent).unwrap_or_else(RawObject::empty);
    let mut members = vec![("loadSession".to_owned(), "true".to_owned())];
    let own = object
        .get("mcpCapabilities")
        .filter(|_| mcp)
        .map(RawValue::get);
    members.push((
        "mcpCapabilities".to_owned(),
        own.unwrap_or(r#"{"http":false,"sse":false}"#).to_owned(),
    ));
    let session = object
        .object("sessionCapabilities")
        .unwrap_or_else(RawObject::empty);
    let mut methods: Vec<_> = SESSION_METHODS
        .iter()
        .map(|name| ((*name).to_owned(), "{}".to_owned()))
        .collect();
    if fork {
        methods.push(("fork".to_owned(), "{}".to_owned()));
    }
    if !attach.is_empty() {
        methods.push((
            "attach".to_owned(),
            serde_json::json!({ "roles": attach }).to_string(),
        ));
    }
    extend(
        &mut methods,
        &session,
        &["list", "resume", "close", "delete", "fork", "attach"],
    );
    members.push(("sessionCapabilities".to_owned(), encode(&methods)));
    extend(
        &mut members,
        &object,
        &["loadSession", "mcpCapabilities", "sessionCapabilities"],
    );
    RawValue::from_string(encode(&members)).expect("names and values are JSON")
}

/// Adds the members of `object` except `own`.
fn extend(members: &mut Vec<(String, String)>, object: &RawObject<'_>, own: &[&str]) {
    let others = object.iter().filter(|(name, _)| !own.contains(name));
    members.extend(others.map(|(name, value)| (name.to_owned(), value.get().to_owned())));
}

fn encode(members: &[(String, String)]) -> String {
    let members = members.iter().map(|(name, value)| {
        let name = serde_json::to_string(name).expect("a string serializes");
        format!("{name}:{value}")
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::raw;

    #[test]
    fn the_gateways_methods_are_offered_and_other_members_keep_their_bytes() {
        let agent = raw(
            r#"{"loadSession":false,"promptCapabilities":{"image": 1.10},"mcpCapabilities":{"http":true},"sessionCapabilities":{"fork":{},"attach":{},"x":{}},"_meta":{"a":1}}"#,
        );
        assert_eq!(
            served_capabilities(agent, false, false, &[]).get(),
            r#"{"loadSession":true,"mcpCapabilities":{"http":false,"sse":false},"sessionCapabilities":{"list":{},"resume":{},"close":{},"delete":{},"x":{}},"promptCapabilities":{"image": 1.10},"_meta":{"a":1}}"#
        );
        let fork: serde_json::Value =
            serde_json::from_str(served_capabilities(raw("{}"), true, true, &["a"]).get()).unwrap();
        assert_eq!(
            fork["mcpCapabilities"],
            serde_json::json!({ "http": false, "sse": false })
        );
        let brings = served_capabilities(agent, false, true, &[]);
        assert!(
            brings.get().contains(r#""mcpCapabilities":{"http":true}"#),
            "{brings}"
        );
        assert_eq!(fork["sessionCapabilities"]["fork"], serde_json::json!({}));
        assert_eq!(
            fork["sessionCapabilities"]["attach"],
            serde_json::json!({ "roles": ["a"] })
        );
    }
}
