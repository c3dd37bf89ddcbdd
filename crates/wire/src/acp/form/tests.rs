use std::time::{Duration, Instant};

use super::*;

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

fn form(properties: &Value) -> Form {
    Form::parse(&raw(&json!({ "type": "object", "properties": properties }))).unwrap()
}

fn error_pointers(form: &Form, content: &Value) -> Vec<String> {
    form.validate(Some(&raw(content)))
        .into_iter()
        .map(|violation| violation.pointer)
        .collect()
}

#[test]
fn every_keyword_of_acp_is_validated() {
    for (property, good, bad) in [
        (json!({ "type": "string" }), json!("x"), json!(1)),
        (
            json!({ "type": "string", "minLength": 2 }),
            json!("é√"),
            json!("é"),
        ),
        (
            json!({ "type": "string", "maxLength": 2 }),
            json!("é√"),
            json!("abc"),
        ),
        (
            json!({ "type": "string", "pattern": "^[a-z]+$" }),
            json!("abc"),
            json!("ABC"),
        ),
        (
            json!({ "type": "string", "pattern": "^(?!.*\\.\\.)[a-z.]+$" }),
            json!("a.b"),
            json!("a..b"),
        ),
        (
            json!({ "type": "string", "format": "email" }),
            json!("a@b.example"),
            json!("a"),
        ),
        (
            json!({ "type": "string", "format": "uri" }),
            json!("https://a.example/x"),
            json!("/x"),
        ),
        (
            json!({ "type": "string", "format": "date" }),
            json!("2026-11-21"),
            json!("2026-13-21"),
        ),
        (
            json!({ "type": "string", "format": "date-time" }),
            json!("2026-11-21T10:00:00Z"),
            json!("2026-11-21"),
        ),
        (
            json!({ "type": "string", "enum": ["a", "b"] }),
            json!("b"),
            json!("c"),
        ),
        (
            json!({ "type": "string", "oneOf": [{ "const": "a", "title": "A" }] }),
            json!("a"),
            json!("A"),
        ),
        (
            json!({ "type": "number", "minimum": 1.5, "maximum": 2 }),
            json!(1.5),
            json!(2.1),
        ),
        (
            json!({ "type": "integer", "minimum": -1 }),
            json!(-1),
            json!(-2),
        ),
        (json!({ "type": "integer" }), json!(2.0), json!(2.5)),
        (json!({ "type": "number" }), json!(2), json!("2")),
        (json!({ "type": "boolean" }), json!(false), json!(null)),
        (
            json!({ "type": "array", "minItems": 1, "maxItems": 2, "items": { "type": "string", "enum": ["a", "b", "c"] } }),
            json!(["a", "c"]),
            json!([]),
        ),
        (
            json!({ "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }] } }),
            json!([]),
            json!("a"),
        ),
    ] {
        let form = form(&json!({ "f": property }));
        assert!(
            error_pointers(&form, &json!({ "f": good })).is_empty(),
            "{property} {good}"
        );
        assert_eq!(
            error_pointers(&form, &json!({ "f": bad })),
            ["/content/f"],
            "{property} {bad}"
        );
        assert!(
            error_pointers(&form, &json!({})).is_empty(),
            "nothing is required"
        );
    }
}

#[test]
fn errors_name_pointers_and_not_values() {
    let schema = json!({
        "type": "object",
        "required": ["name", "a/b~c"],
        "properties": {
            "name": { "type": "string", "minLength": 3, "pattern": "^[a-z]+$" },
            "a/b~c": { "type": "boolean" },
            "tags": { "type": "array", "items": { "type": "string", "enum": ["x", "y"] } },
        },
    });
    let form = Form::parse(&raw(&schema)).unwrap();
    let content =
        json!({ "name": "S3", "tags": ["x", "hush", "y", "hush"], "other": 1, "_meta": {} });
    let violations = form.validate(Some(&raw(&content)));
    let mut pointers: Vec<&str> = violations
        .iter()
        .map(|violation| &*violation.pointer)
        .collect();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/content/_meta",
            "/content/a~1b~0c",
            "/content/name",
            "/content/name",
            "/content/other",
            "/content/tags/1",
            "/content/tags/3"
        ]
    );
    assert!(
        violations
            .iter()
            .all(|violation| !violation.detail.contains("hush") && !violation.detail.contains("S3"))
    );
    assert_eq!(
        form.validate(None).len(),
        2,
        "both required fields are missing"
    );
    for no_object in ["[]", "1", r#"{"name":"abc","name":"abcd","a/b~c":true}"#] {
        let violations = form.validate(Some(&RawValue::from_string(no_object.to_owned()).unwrap()));
        assert_eq!(
            violations.iter().map(|m| &*m.pointer).collect::<Vec<_>>(),
            ["/content"],
            "{no_object}"
        );
    }
    let half = RawValue::from_string(r#"{"name":"\ud800","a/b~c":true}"#.to_owned()).unwrap();
    assert_eq!(form.validate(Some(&half))[0].pointer, "/content/name");
}

#[test]
fn unknown_types_and_formats_are_accepted() {
    let later = form(&json!({
        "colour": { "type": "_colour", "palette": [1] },
        "tags": { "type": "array", "items": { "type": "_tag" } },
        "plain": { "type": "string", "format": "iban", "default": 3, "title": null, "minLength": null, "x": [] },
    }));
    assert!(
        error_pointers(
            &later,
            &json!({ "colour": [1, 2], "tags": [{}], "plain": "" })
        )
        .is_empty()
    );
    let none = Form::parse(&raw(&json!({ "required": null }))).unwrap();
    assert!(none.validate(None).is_empty());
    assert_eq!(error_pointers(&none, &json!({ "x": 1 })), ["/content/x"]);
}

#[test]
fn invalid_schemas_are_rejected() {
    for properties in [
        json!([]),
        json!({ "f": 1 }),
        json!({ "f": {} }),
        json!({ "f": { "type": ["string", "null"] } }),
        json!({ "f": { "type": "string", "minLength": "3" } }),
        json!({ "f": { "type": "string", "minLength": -1 } }),
        json!({ "f": { "type": "string", "pattern": "(" } }),
        json!({ "f": { "type": "string", "pattern": 1 } }),
        json!({ "f": { "type": "string", "enum": "a" } }),
        json!({ "f": { "type": "string", "enum": [1] } }),
        json!({ "f": { "type": "string", "oneOf": [{ "title": "A" }] } }),
        json!({ "f": { "type": "integer", "minimum": "1" } }),
        json!({ "f": { "type": "array" } }),
        json!({ "f": { "type": "array", "items": { "type": "string" } } }),
        json!({ "f": { "type": "array", "items": { "anyOf": [{ "const": 1 }] } } }),
    ] {
        let schema = raw(&json!({ "type": "object", "properties": properties }));
        assert!(Form::parse(&schema).is_err(), "{schema}");
    }
    for schema in [
        "[]",
        "null",
        r#"{"required":["a"]}"#,
        r#"{"required":"a"}"#,
        r#"{"properties":null}"#,
    ] {
        assert!(
            Form::parse(&RawValue::from_string(schema.to_owned()).unwrap()).is_err(),
            "{schema}"
        );
    }
}

#[test]
fn references_and_unknown_keywords_are_ignored() {
    let hostile = form(&json!({
        "f": { "type": "string", "$ref": "#/properties/f", "allOf": [{ "$ref": "file:///etc/passwd" }], "not": {} },
    }));
    assert!(error_pointers(&hostile, &json!({ "f": "x" })).is_empty());
}

#[test]
fn hostile_schemas_have_bounded_cost() {
    let began = Instant::now();
    let nested = format!("{}a{}", "(".repeat(60), "){99}".repeat(60));
    let looking = format!("(?=x){nested}");
    for pattern in [
        "((a{999}){999}){999}",
        "(?=(a{999}){999})b",
        "(?!x)a{99999999999999999999}",
        &nested,
        &looking,
    ] {
        let schema = json!({ "properties": { "f": { "type": "string", "pattern": pattern } } });
        assert_eq!(
            Form::parse(&raw(&schema)).map(drop),
            Err(FormError::Keyword("f".to_owned(), "pattern")),
            "{pattern}"
        );
    }
    let text = "a".repeat(FORM_ANSWER_BYTES / 2);
    for pattern in ["^(a+)+$x", "^(?=a)(a|a)*\\1$x", "(a*)*(?!a)b", "(.*)*\\1x"] {
        let form = form(&json!({ "f": { "type": "string", "pattern": pattern } }));
        assert_eq!(
            error_pointers(&form, &json!({ "f": text })),
            ["/content/f"],
            "{pattern}"
        );
    }
    let many: Map<String, Value> = (0..FORM_FIELDS)
        .map(|n| {
            (
                n.to_string(),
                json!({ "type": "string", "pattern": "(\\w{99}){9}" }),
            )
        })
        .collect();
    assert!(Form::parse(&raw(&json!({ "properties": many }))).is_ok());
    let more: Map<String, Value> = (0..=FORM_FIELDS)
        .map(|n| (n.to_string(), json!({ "type": "boolean" })))
        .collect();
    assert_eq!(
        Form::parse(&raw(&json!({ "properties": more }))).map(drop),
        Err(FormError::TooLarge)
    );
    let long = json!({ "description": "x".repeat(FORM_BYTES) });
    assert_eq!(Form::parse(&raw(&long)).map(drop), Err(FormError::TooLarge));
    assert_eq!(
        error_pointers(
            &form(&json!({})),
            &json!({ "f": "x".repeat(FORM_ANSWER_BYTES) })
        ),
        ["/content"],
        "the size of an answer is limited"
    );
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}
