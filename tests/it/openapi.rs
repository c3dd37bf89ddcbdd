//! `openapi/openapi.json` equals the document from the code, and is consistent.

use std::collections::BTreeSet;

use acp_gateway::surface::rest;
use events::api::ProblemCode;
use serde_json::{Value, json};

use crate::docs;
use crate::support::Setup;
use crate::support::places::project;

fn document() -> Value {
    serde_json::from_str(&rest::document_json()).expect("the document is JSON")
}

#[test]
fn the_committed_document_is_the_codes() {
    let path = project().join("openapi/openapi.json");
    let committed = std::fs::read_to_string(path).expect("it is committed");
    assert!(
        committed == rest::document_json(),
        "the routes have changed; rewrite the document: cargo run -- openapi > openapi/openapi.json"
    );
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_referenced_schema_exists() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 40, "{found:?}");
    for reference in found {
        let pointer = reference
            .strip_prefix('#')
            .expect("references stay inside the document");
        assert!(
            document.pointer(pointer).is_some(),
            "{reference} leads nowhere"
        );
    }
}

#[test]
fn every_problem_that_an_answer_can_be_is_documented() {
    let text = rest::document_json();
    for code in ProblemCode::ALL {
        // Problems in events and in results of tasks.
        let in_events_only = matches!(
            code,
            ProblemCode::Interrupted
                | ProblemCode::BudgetExceeded
                | ProblemCode::CancelTimeout
                | ProblemCode::DeadlineExceeded
                | ProblemCode::KeyRevoked
                | ProblemCode::PromptExpired
        );
        // A method that a path does not have is no operation. The chat protocols have no operations here.
        let of_no_operation = matches!(
            code,
            ProblemCode::MethodNotAllowed | ProblemCode::HistoryDiverged
        );
        let named = text.contains(&format!("`{}`", code.as_str()));
        assert!(
            named || in_events_only || of_no_operation,
            "{}",
            code.as_str()
        );
    }
}

fn is_ticket(way: &Value) -> bool {
    way["ticket"].is_array()
}

#[test]
fn every_operation_needs_the_key_but_the_probes() {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 20);
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            let open = operation["security"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(
                open,
                matches!(path.as_str(), "/livez" | "/readyz"),
                "{method} {path}"
            );
            let ticket = operation["security"]
                .as_array()
                .is_some_and(|ways| ways.iter().any(is_ticket));
            let ends = ["/events", "/events/stream", "/auth/terminals/{signIn}"];
            let streams = ends.iter().any(|end| path.ends_with(end));
            assert_eq!(ticket, streams, "{method} {path}");
            for parameter in path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            {
                let declared = operation["parameters"].as_array().expect("parameters");
                let found = declared
                    .iter()
                    .any(|p| p["name"] == parameter && p["in"] == "path");
                assert!(found, "{method} {path}: {parameter}");
            }
        }
    }
}

/// Every operation with its method and path.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    paths.flat_map(|(path, item)| {
        let operations = item.as_object().expect("operations").iter();
        operations.map(move |(method, operation)| {
            (format!("{} {path}", method.to_uppercase()), operation)
        })
    })
}

fn operation<'a>(document: &'a Value, name: &str) -> &'a Value {
    let found = operations(document).find(|(operation, _)| operation == name);
    found
        .unwrap_or_else(|| panic!("{name} is not documented"))
        .1
}

#[test]
fn no_response_mixes_media_types() {
    let document = document();
    for (name, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let types = response["content"]
                .as_object()
                .map_or(0, serde_json::Map::len);
            // `Accept` selects the format of a scrape.
            let expected = if name == "GET /metrics" && status == "200" {
                2
            } else {
                1
            };
            assert!(
                types <= expected,
                "{name} {status}: {}",
                response["content"]
            );
        }
    }
}

#[test]
fn each_stream_has_a_path_of_its_own() {
    let document = document();
    for name in [
        "GET /v1/events/stream",
        "GET /v1/sessions/{session}/events/stream",
        "GET /v1/sessions/{session}/prompts/{prompt}/events/stream",
        "POST /v1/sessions/{session}/prompts/stream",
    ] {
        let content = &operation(&document, name)["responses"]["200"]["content"];
        let schema = &content["text/event-stream"]["schema"]["$ref"];
        assert_eq!(schema, "#/components/schemas/SessionEvent", "{name}");
        // A stream reports these in an event, because an EventSource never reconnects after such a status.
        let retried = operation(&document, name)["responses"]["429"].is_object();
        assert_eq!(retried, name.starts_with("POST"), "{name}");
    }
}

#[test]
fn unions_are_named_and_discriminated() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    for (name, least) in [("SessionEvent", 20), ("TurnItem", 10), ("ContentBlock", 5)] {
        let union = &schemas[format!("Known{name}")];
        assert_eq!(union["discriminator"]["propertyName"], "type", "{name}");
        let mapping = union["discriminator"]["mapping"]
            .as_object()
            .expect("a mapping");
        let members: BTreeSet<&str> = union["oneOf"]
            .as_array()
            .expect("a union")
            .iter()
            .map(|member| member["$ref"].as_str().expect("a named member"))
            .collect();
        assert_eq!(
            members,
            mapping
                .values()
                .map(|target| target.as_str().expect("a reference"))
                .collect()
        );
        assert!(members.len() >= least, "{name}: {members:?}");
        for (kind, target) in mapping {
            let member = document
                .pointer(&target.as_str().expect("a reference")[1..])
                .expect("a schema");
            assert_eq!(
                member["properties"]["type"]["enum"],
                serde_json::json!([kind]),
                "{name}"
            );
            assert!(
                member["required"]
                    .as_array()
                    .expect("a list")
                    .contains(&"type".into()),
                "{name} {kind}"
            );
        }
    }
}

/// A generator treats an object without declared members as empty unless the schema allows any member.
fn closed_objects(value: &Value, at: &str, found: &mut Vec<String>) {
    let Some(members) = value.as_object() else {
        value
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|item| closed_objects(item, at, found));
        return;
    };
    let kind = &value["type"];
    let object = kind == "object"
        || kind
            .as_array()
            .is_some_and(|kinds| kinds.contains(&"object".into()));
    if object
        && !members.contains_key("properties")
        && !members.contains_key("additionalProperties")
    {
        found.push(at.to_owned());
    }
    for (name, member) in members.iter().filter(|(name, _)| *name != "example") {
        closed_objects(member, &format!("{at}/{name}"), found);
    }
}

#[test]
fn raw_objects_may_have_any_member() {
    let mut found = Vec::new();
    closed_objects(&document()["components"]["schemas"], "", &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn servers_tags_and_the_merge_patch_type_are_documented() {
    let document = document();
    assert_eq!(document["servers"][0]["url"], "/");
    let tags = document["tags"].as_array().expect("tags");
    let described: BTreeSet<&str> = tags
        .iter()
        .filter(|tag| {
            tag["description"]
                .as_str()
                .is_some_and(|text| text.len() > 20)
        })
        .filter_map(|tag| tag["name"].as_str())
        .collect();
    let used: BTreeSet<&str> = operations(&document)
        .filter_map(|(_, operation)| operation["tags"][0].as_str())
        .collect();
    assert_eq!(described, used);
    let patch = &operation(&document, "PATCH /v1/sessions/{session}")["requestBody"]["content"];
    assert!(
        patch["application/merge-patch+json"].is_object() && patch["application/json"].is_object()
    );
}

#[test]
fn refusals_that_pass_name_retry_after_and_others_are_complete() {
    let document = document();
    for (name, operation) in operations(&document) {
        for status in ["429", "503"] {
            let response = &operation["responses"][status];
            assert!(
                response.is_null() || response["headers"]["Retry-After"].is_object(),
                "{name} {status}"
            );
        }
        let writes = name.contains(" /v1/sessions") && !name.starts_with("GET");
        assert!(
            !writes || operation["responses"]["507"].is_object(),
            "{name}: 507"
        );
    }
    for name in [
        "POST /v1/sessions",
        "GET /v1/events",
        "GET /v1/events/stream",
    ] {
        assert!(
            operation(&document, name)["responses"]["404"].is_object(),
            "{name}: 404"
        );
    }
}

#[test]
fn the_main_path_has_examples() {
    let document = document();
    for (name, status, media) in [
        ("POST /v1/sessions", "201", "application/json"),
        ("GET /v1/sessions/{session}", "200", "application/json"),
        (
            "POST /v1/sessions/{session}/prompts",
            "202",
            "application/json",
        ),
        (
            "POST /v1/sessions/{session}/prompts/stream",
            "200",
            "text/event-stream",
        ),
        (
            "GET /v1/sessions/{session}/events",
            "200",
            "application/json",
        ),
        (
            "GET /v1/sessions/{session}/events/stream",
            "200",
            "text/event-stream",
        ),
        (
            "GET /v1/sessions/{session}/requests",
            "200",
            "application/json",
        ),
        (
            "GET /v1/sessions/{session}/transcript",
            "200",
            "application/json",
        ),
    ] {
        let operation = operation(&document, name);
        let example = &operation["responses"][status]["content"][media]["example"];
        assert!(example.is_object(), "{name}: {example}");
        if let Some(content) = operation["requestBody"]["content"].as_object() {
            assert!(
                content.values().all(|media| media["example"].is_object()),
                "{name}: its request"
            );
        }
    }
    let answer = operation(
        &document,
        "POST /v1/sessions/{session}/permissions/{request}",
    );
    assert!(answer["requestBody"]["content"]["application/json"]["example"].is_object());
}

fn media_types(body: &Value) -> impl Iterator<Item = (&String, &Value)> {
    body["content"].as_object().into_iter().flatten()
}

fn success_responses(operation: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let responses = operation["responses"]
        .as_object()
        .expect("responses")
        .iter();
    responses.filter(|(status, _)| status.starts_with('2'))
}

fn parameters(operation: &Value) -> impl Iterator<Item = &Value> {
    operation["parameters"].as_array().into_iter().flatten()
}

#[test]
fn every_operation_has_an_example() {
    let document = document();
    let mut missing = Vec::new();
    for (name, operation) in operations(&document) {
        let in_path = parameters(operation).filter(|parameter| parameter["in"] == "path");
        missing.extend(
            in_path
                .filter(|parameter| parameter.get("example").is_none())
                .map(|parameter| format!("{name}: the parameter {}", parameter["name"])),
        );
        let request = media_types(&operation["requestBody"]);
        let without = request.filter(|(_, media)| media.get("example").is_none());
        missing.extend(without.map(|(media, _)| format!("{name}: the request {media}")));
        let bodies = success_responses(operation).flat_map(|(_, response)| media_types(response));
        let has_example = parameters(operation)
            .chain(
                media_types(&operation["requestBody"])
                    .chain(bodies)
                    .map(|(_, media)| media),
            )
            .any(|part| part.get("example").is_some());
        if !has_example {
            missing.push(name);
        }
    }
    assert!(
        missing.is_empty(),
        "without an example:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_success_body_has_an_example() {
    let document = document();
    let mut missing = Vec::new();
    for (name, operation) in operations(&document) {
        for (status, response) in success_responses(operation) {
            let without = media_types(response).filter(|(_, media)| media.get("example").is_none());
            missing.extend(without.map(|(media, _)| format!("{name}: {status} {media}")));
        }
    }
    assert!(
        missing.is_empty(),
        "without an example:\n{}",
        missing.join("\n")
    );
}

/// The links to the documentation, as paths in the repository with their anchors. The document is in `openapi/`, so
/// the same relative URL leads to the page that the gateway serves.
fn external_docs(document: &Value) -> Vec<String> {
    let tags = document["tags"].as_array().expect("tags").iter();
    let links = tags
        .chain(std::iter::once(document))
        .map(|part| &part["externalDocs"]["url"]);
    let links = links.map(|url| url.as_str().expect("each tag has a link"));
    links
        .map(|url| url.strip_prefix("../").expect("a relative URL").to_owned())
        .collect()
}

#[tokio::test]
async fn the_gateway_serves_the_linked_pages() {
    let gateway = Setup::fake(&[]).start();
    for link in external_docs(&document()) {
        let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let file = project().join(path);
        let page = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{path}: {error}"));
        let response = gateway
            .http
            .get(format!("http://{}/{path}", gateway.address()))
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(
            response.headers()["content-type"],
            "text/plain; charset=utf-8",
            "{path}"
        );
        assert_eq!(response.text().await.expect("text"), page, "{path}");
        assert!(
            anchor.is_empty() || docs::anchors(&page).contains(anchor),
            "{link}"
        );
    }
    for path in [
        "/docs/guides/none.md",
        "/docs/guides/..%2Foperations.md",
        "/docs/guides/",
    ] {
        let response = gateway
            .http
            .get(format!("http://{}{path}", gateway.address()))
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn the_index_of_the_documentation_links_to_every_guide_and_reference() {
    let gateway = Setup::fake(&[]).start();
    let get = async |path: &str| {
        let url = format!("http://{}/docs/{path}", gateway.address());
        let response = gateway.http.get(url).send().await.expect("a response");
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.expect("text")
    };
    let index = get("").await;
    let links: BTreeSet<&str> = index
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0))
        .collect();
    let mut expected = BTreeSet::from(["api".to_owned(), "problems".to_owned()]);
    for folder in ["guides", "reference"] {
        for page in std::fs::read_dir(project().join("docs").join(folder)).expect("a folder") {
            let name = page.expect("a file").file_name();
            expected.insert(format!("{folder}/{}", name.to_str().expect("UTF-8")));
        }
    }
    assert_eq!(links, expected.iter().map(String::as_str).collect());
    assert!(!index.contains(['`', '|']), "{index}");
    for link in links {
        get(link).await;
    }
    assert!(get("api").await.contains("swagger-ui"));
}

/// The document without the values that it does not list: an example with an unknown value does not fit.
fn closed_document() -> Value {
    fn close(value: &mut Value) {
        if let Some(members) = value.get_mut("anyOf").and_then(Value::as_array_mut)
            && members.iter().any(is_known)
        {
            members.retain(is_known);
        }
        match value {
            Value::Object(members) => members.values_mut().for_each(close),
            Value::Array(items) => items.iter_mut().for_each(close),
            _ => {}
        }
    }
    let mut document = document();
    close(&mut document);
    document
}

/// Whether a member of an open schema has the listed values.
fn is_known(member: &Value) -> bool {
    let reference = member["$ref"].as_str().unwrap_or_default();
    reference.starts_with("#/components/schemas/Known")
}

/// Every schema that a part of the document reaches, by name.
fn reached<'a>(document: &'a Value, from: &'a Value) -> BTreeSet<&'a str> {
    let mut waiting = vec![from];
    let mut found = BTreeSet::new();
    while let Some(part) = waiting.pop() {
        let mut named = BTreeSet::new();
        references(part, &mut named);
        for reference in named {
            let name = reference
                .strip_prefix("#/components/schemas/")
                .expect("a schema");
            if found.insert(name) {
                waiting.push(&document["components"]["schemas"][name]);
            }
        }
    }
    found
}

#[test]
fn enums_and_unions_are_open_in_responses_and_closed_in_requests() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    let mut opened = BTreeSet::new();
    for (name, operation) in operations(&document) {
        for schema in reached(&document, &operation["requestBody"])
            .into_iter()
            .chain(parameters(operation).flat_map(|parameter| reached(&document, parameter)))
        {
            let members = schemas[schema]["anyOf"].as_array();
            assert!(
                !members.is_some_and(|members| members.iter().any(is_known)),
                "{name}: {schema} is open"
            );
        }
        for schema in reached(&document, &operation["responses"]) {
            let closed = &schemas[schema];
            let is_closed = closed["enum"].is_array() || closed["discriminator"].is_object();
            let Some(open) = schema.strip_prefix("Known") else {
                assert!(!is_closed, "{name}: {schema} is closed");
                continue;
            };
            assert!(is_closed, "{name}: {schema}");
            if !opened.insert(open) {
                continue;
            }
            assert_eq!(
                schemas[open]["anyOf"].as_array().map(Vec::len),
                Some(2),
                "{open}"
            );
            let later = if closed["enum"].is_array() {
                json!("later_value")
            } else {
                json!({ "type": "later_type", "more": 1 })
            };
            let schema = json!({
                "$ref": format!("#/components/schemas/{open}"),
                "components": document["components"],
            });
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            assert!(validator.is_valid(&later), "{open}");
        }
    }
    assert!(opened.len() > 40, "{opened:?}");
}

#[test]
fn every_operation_is_described_and_every_response_names_its_headers() {
    let document = document();
    for (name, operation) in operations(&document) {
        let description = operation["description"].as_str().unwrap_or_default();
        assert!(description.len() > 20, "{name} has no description");
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let mut expected = vec!["X-Request-Id"];
            match status.as_str() {
                // A ticket is no resource: only the response contains it.
                "201" if name != "POST /v1/tickets" => expected.push("Location"),
                "304" => expected.push("ETag"),
                "401" => expected.push("WWW-Authenticate"),
                "429" => expected.extend(["RateLimit", "RateLimit-Policy", "Retry-After"]),
                "503" => expected.push("Retry-After"),
                _ => {}
            }
            for header in expected {
                assert!(
                    response["headers"][header].is_object(),
                    "{name} {status}: {header}"
                );
            }
        }
    }
}

#[test]
fn examples_fit_their_schemas() {
    let document = closed_document();
    let mut examples = 0;
    for (name, operation) in operations(&document) {
        let responses = operation["responses"]
            .as_object()
            .expect("responses")
            .values();
        let bodies = responses.chain(std::iter::once(&operation["requestBody"]));
        let media = bodies
            .filter_map(|body| body["content"].as_object())
            .flat_map(serde_json::Map::values);
        for media in media.filter(|media| media.get("example").is_some()) {
            let mut schema = media["schema"].clone();
            schema["components"] = document["components"].clone();
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            let errors: Vec<String> = validator
                .iter_errors(&media["example"])
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{name}: {errors:?}");
            examples += 1;
        }
        for parameter in
            parameters(operation).filter(|parameter| parameter.get("example").is_some())
        {
            let mut schema = parameter["schema"].clone();
            schema["components"] = document["components"].clone();
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            assert!(
                validator.is_valid(&parameter["example"]),
                "{name}: {parameter}"
            );
        }
    }
    assert!(examples > 50, "only {examples} examples");
}
