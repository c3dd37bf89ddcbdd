//! Opens the enums and unions of responses.
//!
//! A later version of the gateway adds values of enums and members of unions. A client whose code is generated from today's
//! document must be able to read them. A request stays closed: the gateway rejects a value that it does not know.
//!
//! An open schema is the union of the closed one, which is named `Known…`, and any other value. Requests refer to
//! the closed one. An object of both directions that contains such a schema has a copy for requests, named `…Input`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

type Names = BTreeSet<String>;

const SCHEMAS: &str = "#/components/schemas/";

pub(super) fn open_responses(document: &mut Value) {
    let Value::Object(mut schemas) = document["components"]["schemas"].take() else {
        panic!("the document has schemas");
    };
    let graph = schemas
        .iter()
        .map(|(name, schema)| (name.clone(), references(schema)));
    let graph: BTreeMap<String, Names> = graph.collect();
    let mut in_requests = Names::new();
    each_part(document, &["parameters", "requestBody"], &mut |part| {
        in_requests.extend(references(part));
    });
    let in_requests = reachable(&graph, in_requests);
    let mut in_responses = Names::new();
    each_part(document, &["responses"], &mut |part| {
        in_responses.extend(references(part));
    });
    // A schema that no operation names belongs to an event.
    let of_events = graph.keys().filter(|name| !in_requests.contains(*name));
    in_responses.extend(of_events.cloned());
    let in_responses = reachable(&graph, in_responses);

    let open = in_responses
        .iter()
        .filter(|name| schemas.get(*name).is_some_and(is_closed));
    let open: Names = open.cloned().collect();
    let contains_open =
        |name: &&String| !reachable(&graph, graph[*name].clone()).is_disjoint(&open);
    let in_both = in_requests.intersection(&in_responses);
    let split = in_both.filter(|name| !open.contains(*name) && contains_open(name));
    let split: Names = split.cloned().collect();
    let mut rename = |location: &mut String| {
        let name = &location[SCHEMAS.len()..];
        if open.contains(name) {
            *location = format!("{SCHEMAS}Known{name}");
        } else if split.contains(name) {
            *location = format!("{SCHEMAS}{name}Input");
        }
    };
    for name in in_requests.difference(&in_responses) {
        if let Some(schema) = schemas.get_mut(name) {
            visit(schema, &mut rename);
        }
    }
    for name in &split {
        let mut input = schemas[name].clone();
        visit(&mut input, &mut rename);
        schemas.insert(format!("{name}Input"), input);
    }
    each_part(document, &["parameters", "requestBody"], &mut |part| {
        visit(part, &mut rename);
    });
    for name in &open {
        let reference = |kind: &str| json!({ "$ref": format!("{SCHEMAS}{kind}{name}") });
        let closed = schemas[name].clone();
        let is_union = closed["oneOf"].is_array();
        let other = if is_union {
            reference("Unknown")
        } else {
            json!({ "type": "string" })
        };
        let mut opened = json!({ "anyOf": [reference("Known"), other] });
        if let Some(description) = closed.get("description") {
            opened["description"] = description.clone();
        }
        if is_union {
            let unknown = json!({
                "type": "object",
                "description": "A member of the union that a later version added. Ignore it.",
                "required": ["type"],
                "properties": {
                    "type": { "type": "string", "description": "A value that this document does not list." },
                },
                "additionalProperties": true,
            });
            schemas.insert(format!("Unknown{name}"), unknown);
        }
        schemas.insert(format!("Known{name}"), closed);
        schemas.insert(name.clone(), opened);
    }
    schemas.sort_keys();
    document["components"]["schemas"] = schemas.into();
}

/// An enum of strings, or a union with a tag.
fn is_closed(schema: &Value) -> bool {
    schema["enum"].is_array() || schema["oneOf"].is_array() && schema["discriminator"].is_object()
}

fn references(value: &Value) -> Names {
    let mut names = Names::new();
    visit(&mut value.clone(), &mut |location| {
        names.insert(location[SCHEMAS.len()..].to_owned());
    });
    names
}

fn reachable(graph: &BTreeMap<String, Names>, from: Names) -> Names {
    let mut waiting: Vec<String> = from.into_iter().collect();
    let mut found = Names::new();
    while let Some(name) = waiting.pop() {
        if found.insert(name.clone()) {
            waiting.extend(graph.get(&name).into_iter().flatten().cloned());
        }
    }
    found
}

/// Calls `act` for these members of each operation.
fn each_part(document: &mut Value, members: &[&str], act: &mut dyn FnMut(&mut Value)) {
    let items = document["paths"]
        .as_object_mut()
        .into_iter()
        .flat_map(|paths| paths.values_mut());
    let operations = items
        .filter_map(Value::as_object_mut)
        .flat_map(|item| item.values_mut());
    for operation in operations {
        for member in members {
            if let Some(part) = operation.get_mut(member) {
                act(part);
            }
        }
    }
}

/// Calls `act` for the location of each reference to a schema.
fn visit(value: &mut Value, act: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) if text.starts_with(SCHEMAS) => act(text),
        Value::Object(members) => members.values_mut().for_each(|member| visit(member, act)),
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, act)),
        _ => {}
    }
}

/// Allows any member in objects that declare no members. Otherwise code generators treat them as empty
/// objects.
pub(super) fn open_raw_objects(schema: &mut Value) {
    let kind = &schema["type"];
    let kinds = kind
        .as_array()
        .map_or(std::slice::from_ref(kind), Vec::as_slice);
    let is_raw = kinds.iter().any(|kind| kind == "object")
        && schema.get("properties").is_none()
        && schema.get("additionalProperties").is_none();
    if is_raw {
        schema["additionalProperties"] = true.into();
    }
    match schema {
        Value::Object(members) => members.values_mut().for_each(open_raw_objects),
        Value::Array(items) => items.iter_mut().for_each(open_raw_objects),
        _ => {}
    }
}
