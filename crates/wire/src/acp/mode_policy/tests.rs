use super::*;
use crate::acp::{PromptCapabilities, selected};
use crate::acp::{parse_permission, raw, validate_prompt};

const MODES: &str = r#"{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"yolo","name":"Y"},
    {"id":"x-1","name":"Full access"},{"id":"odd","name":"\ud800"},7]}"#;
const OPTIONS: &str = r#"[
    {"id":"mode","category":"mode","type":"select","currentValue":"ask","options":[
        {"value":"ask","name":"Ask"},{"group":"g","name":"G","options":[{"value":"v-2","name":"Bypass Permissions"}]}]},
    {"configId":"model","category":"model","type":"select","currentValue":"auto","options":[{"value":"auto","name":"Auto"}]},
    {"id":"allow-all","type":"boolean","currentValue":false},
    {"id":"plain","type":"select","currentValue":"a","options":[{"value":"a","name":"A"},{"value":"auto","name":"B"}]}]"#;

fn denied() -> DeniedModes {
    let names = [
        "bypassPermissions",
        "yolo",
        "full-access",
        "allow-all",
        "auto",
    ];
    DeniedModes::new(names.map(str::to_owned).to_vec())
}

fn policy(denied: &DeniedModes) -> ModePolicy<'_> {
    ModePolicy {
        denied,
        modes: Some(raw(MODES)),
        config_options: Some(raw(OPTIONS)),
    }
}

#[test]
fn modes_are_found_by_id_and_by_shown_name() {
    let denied = denied();
    for (id, entry) in [
        ("yolo", Some("yolo")),
        ("YOLO", Some("yolo")),
        ("x-1", Some("full-access")),
        ("v-2", Some("bypassPermissions")),
        ("ask", None),
        ("odd", None),
        ("unknown", None),
    ] {
        assert_eq!(policy(&denied).find_mode(id), entry, "{id}");
    }
    let unknown = ModePolicy {
        denied: &denied,
        modes: None,
        config_options: None,
    };
    assert_eq!(
        (unknown.find_mode("yolo"), unknown.find_mode("x-1")),
        (Some("yolo"), None)
    );
}

#[test]
fn values_of_options_are_found_unless_the_option_selects_a_model() {
    let denied = denied();
    let id = |value: &'static str| ConfigValue::Id(value.into());
    for (option, value, entry) in [
        ("mode", id("yolo"), Some("yolo")),
        ("mode", id("v-2"), Some("bypassPermissions")),
        ("mode", id("ask"), None),
        ("model", id("auto"), None),
        ("model", id("yolo"), None),
        ("plain", id("auto"), Some("auto")),
        ("plain", id("a"), None),
        ("unknown", id("yolo"), Some("yolo")),
        ("allow-all", ConfigValue::Boolean(true), Some("allow-all")),
        ("allow-all", ConfigValue::Boolean(false), None),
        ("allow-all", id("on"), Some("allow-all")),
        ("allow-all", id("Off"), None),
        ("yolo", ConfigValue::Boolean(true), Some("yolo")),
        ("plain", ConfigValue::Boolean(true), None),
    ] {
        assert_eq!(
            policy(&denied).find_option(option, &value),
            entry,
            "{option} {value:?}"
        );
    }
}

#[test]
fn offered_modes_can_be_sent_by_clients() {
    let denied = denied();
    let expected = [
        ModeSelection::mode("yolo"),
        ModeSelection::mode("x-1"),
        ModeSelection::option("mode", Some("v-2")),
        ModeSelection::option("allow-all", None),
        ModeSelection::option("plain", Some("auto")),
    ];
    assert_eq!(policy(&denied).offered(), expected);
    let none = DeniedModes::new(Vec::new());
    assert!(policy(&none).offered().is_empty());
}

#[test]
fn the_current_mode_and_updates_are_classified() {
    let denied = denied();
    let policy = policy(&denied);
    assert_eq!(policy.current(), None);
    let update = |kind: &str, text: &str| policy.of_update(kind, raw(text).to_owned().as_ref());
    let mode = |text: &str| update(update::CURRENT_MODE, text);
    assert_eq!(
        mode(r#"{"currentModeId":"yolo"}"#),
        Some(ModeSelection::mode("yolo"))
    );
    assert_eq!(
        mode(r#"{"currentModeId":"x-1"}"#),
        Some(ModeSelection::mode("x-1"))
    );
    assert_eq!(mode(r#"{"currentModeId":"ask"}"#), None);
    assert_eq!(mode(r#"{"currentModeId":7}"#), None);
    let options = |now: &str| {
        let text = format!(
            r#"{{"configOptions":[{{"id":"mode","category":"mode","currentValue":{now}}}]}}"#
        );
        policy.of_update(update::CONFIG_OPTION, raw(&text).to_owned().as_ref())
    };
    assert_eq!(
        options(r#""yolo""#),
        Some(ModeSelection::option("mode", Some("yolo")))
    );
    assert_eq!(options(r#""ask""#), None);
    assert_eq!(options("true"), None);
    let switch = r#"{"configOptions":[{"id":"allow-all","currentValue":true}]}"#;
    assert_eq!(
        update(update::CONFIG_OPTION, switch),
        Some(ModeSelection::option("allow-all", None))
    );
    assert_eq!(update(update::PLAN, r#"{"currentModeId":"yolo"}"#), None);
}

#[test]
fn options_of_a_permission_request_are_found_by_id_and_by_name() {
    let denied = denied();
    let request = r#"{"sessionId":"s","options":[
        {"optionId":"bypassPermissions","name":"Yes","kind":"allow_always"},
        {"optionId":"plan_opt_1","name":"Start in yolo mode","kind":"allow_once"},
        {"optionId":"default","name":"Yes, and approve edits","kind":"allow_once"},
        {"optionId":"plan","name":"No, do not bypass permissions","kind":"reject_once"},
        {"optionId":"odd","name":"\ud800","kind":"allow_once"}]}"#;
    let view = parse_permission(raw(request)).unwrap();
    for (option, entry) in [
        ("bypassPermissions", Some("bypassPermissions")),
        ("plan_opt_1", Some("yolo")),
        ("default", None),
        ("plan", None),
        ("odd", None),
        ("unknown", None),
    ] {
        assert_eq!(
            view.find_denied(&denied, &selected(option)),
            entry,
            "{option}"
        );
    }
    // The policy of the operator selects the first option that is not denied.
    assert_eq!(
        view.allow_once(&denied).unwrap().get(),
        selected("default").get()
    );
}

#[test]
fn slash_commands_that_change_the_mode_are_found() {
    let denied = denied();
    let all = PromptCapabilities {
        image: true,
        audio: true,
        embedded_context: true,
    };
    let found = |texts: &[&str]| {
        let blocks: Vec<_> = texts
            .iter()
            .map(|text| serde_json::json!({ "type": "text", "text": text }))
            .collect();
        // An escape of an ASCII character is valid JSON.
        let blocks = serde_json::to_string(&blocks)
            .unwrap()
            .replace('/', "\\u002f");
        match find_mode_command(&denied, &validate_prompt(raw(&blocks), all).unwrap()) {
            Some(ModeCommand::Denied(entry)) => format!("denied {entry}"),
            Some(ModeCommand::Changes { name }) => format!("changes {name}"),
            None => String::new(),
        }
    };
    for (texts, expected) in [
        (&["/yolo"][..], "denied yolo"),
        (&["/YOLO on"], "denied yolo"),
        (&[" \n\u{feff}/ yolo"], "denied yolo"),
        (&["/yolo-mode"], "denied yolo"),
        (&["//mode\tyolo"], "denied yolo"),
        (&["/mode bypass permissions"], "denied bypassPermissions"),
        (
            &["/permissions set full-access please"],
            "denied full-access",
        ),
        (&["/approval-mode=yolo"], "denied yolo"),
        (&["/config approval.mode=yolo"], "denied yolo"),
        (&["look at this", "/yolo"], "denied yolo"),
        (&["/mode ", "yolo"], "denied yolo"),
        (&["", "/", "yolo"], "denied yolo"),
        (&["/mode plan"], "changes mode"),
        (&["/permissions"], "changes permissions"),
        (&["/mode plan", "/mode yolo"], "denied yolo"),
        (&["/review yolo"], ""),
        (&["/yolo2"], ""),
        (&["what is /yolo?"], ""),
        (&["yolo"], ""),
        (&["/"], ""),
        (&["/home/user/mode is a path"], ""),
        (&[""], ""),
    ] {
        assert_eq!(found(texts), expected, "{texts:?}");
    }
}

#[test]
fn only_texts_that_may_be_commands_are_decoded() {
    for (literal, may) in [
        (r#""/a""#, true),
        (r#"" \n\t/a""#, true),
        (r#""\/a""#, true),
        (r#""\u002fa""#, true),
        ("\"\u{feff}/a\"", true),
        (r#""a/""#, false),
        (r#""\"/a""#, false),
        (r#""""#, false),
        (r#""\n""#, false),
    ] {
        assert_eq!(may_be_command(literal), may, "{literal}");
    }
}

#[test]
fn long_lists_of_modes_are_parsed_once() {
    let denied = denied();
    let mode = |number| {
        format!(
            r#"{{"id":"m-{number}","name":"{}"}}"#,
            if number % 2 == 0 { "Yolo" } else { "Ask" }
        )
    };
    let modes: Vec<_> = (0..4000).map(mode).collect();
    let modes = format!(r#"{{"availableModes":[{}]}}"#, modes.join(","));
    let policy = ModePolicy {
        denied: &denied,
        modes: Some(raw(&modes)),
        config_options: Some(raw(OPTIONS)),
    };
    let began = std::time::Instant::now();
    let offered = policy.offered();
    // With one parse for each mode, this takes more than a minute.
    assert!(
        began.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(offered.len(), 2000 + 3);
    assert_eq!(offered[1], ModeSelection::mode("m-2"));
}
