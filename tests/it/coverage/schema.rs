//! The items of the schema crate: methods, kinds, capabilities.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

fn schema<T: JsonSchema>() -> Value {
    serde_json::to_value(schemars::schema_for!(T)).expect("a schema is JSON")
}

/// The method names of a struct like `AgentMethodNames`.
pub(crate) fn methods(names: &impl Serialize) -> Vec<String> {
    let names = serde_json::to_value(names).expect("names are JSON");
    let names = names.as_object().expect("a struct").values();
    names
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

/// The values of the member that distinguishes the variants of a union.
pub(crate) fn variants<T: JsonSchema>(tag: &str) -> Vec<String> {
    let schema = schema::<T>();
    let union = ["oneOf", "anyOf"]
        .iter()
        .find_map(|key| schema[*key].as_array())
        .expect("a union");
    let names = union
        .iter()
        .filter_map(|variant| variant["properties"][tag]["const"].as_str());
    names.map(str::to_owned).collect()
}

/// Capabilities as paths: every member that holds no further ones.
pub(crate) fn capabilities<T: JsonSchema>() -> Vec<String> {
    let schema = schema::<T>();
    let mut paths = Vec::new();
    walk(&schema, &schema, "", &mut paths);
    paths
}

fn walk(root: &Value, node: &Value, path: &str, paths: &mut Vec<String>) {
    let node = resolved(root, node);
    let members = node["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "_meta");
    let mut leaf = true;
    for (name, member) in members {
        leaf = false;
        let dot = if path.is_empty() { "" } else { "." };
        walk(root, member, &format!("{path}{dot}{name}"), paths);
    }
    if leaf && !path.is_empty() {
        paths.push(path.to_owned());
    }
}

/// Resolves references. Resolves a nullable type to its other type.
fn resolved<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    if let Some(name) = node["$ref"].as_str() {
        let target = root
            .pointer(name.trim_start_matches('#'))
            .expect("the reference leads somewhere");
        return resolved(root, target);
    }
    let parts = ["anyOf", "oneOf", "allOf"]
        .iter()
        .find_map(|key| node[*key].as_array());
    match parts.and_then(|parts| parts.iter().find(|part| part["type"] != "null")) {
        Some(part) => resolved(root, part),
        None => node,
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;

    #[test]
    fn walk_finds_nested_and_nullable_members() {
        let agent = capabilities::<v1::AgentCapabilities>();
        for path in [
            "loadSession",
            "mcpCapabilities.acp",
            "sessionCapabilities.systemPrompt.mode.override",
            "auth.logout",
        ] {
            assert!(
                agent.iter().any(|known| known == path),
                "{path} in {agent:?}"
            );
        }
        assert!(
            !agent
                .iter()
                .any(|path| path.contains("_meta") || path == "auth"),
            "{agent:?}"
        );
        let updates = variants::<v2::SessionUpdate>("sessionUpdate");
        assert!(
            updates.iter().any(|kind| kind == "state_update"),
            "{updates:?}"
        );
        assert!(methods(&v1::AGENT_METHOD_NAMES).contains(&"session/new".to_owned()));
    }
}
