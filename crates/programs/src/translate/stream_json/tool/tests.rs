use super::*;

fn info(name: &str, input: &Value) -> ToolInfo {
    describe(name, input, Path::new("/w"))
}

#[test]
fn tools_have_a_title_and_a_kind() {
    for (name, input, title, kind) in [
        ("Bash", json!({ "command": "ls" }), "ls", "execute"),
        ("Bash", Value::Null, "Terminal", "execute"),
        ("Read", json!({ "file_path": "/w/a" }), "Read a", "read"),
        (
            "Read",
            json!({ "file_path": "/x/a", "offset": 5 }),
            "Read /x/a (from line 5)",
            "read",
        ),
        (
            "Write",
            json!({ "file_path": "/w/a", "content": "c" }),
            "Write a",
            "edit",
        ),
        (
            "Glob",
            json!({ "path": "/w", "pattern": "*.rs" }),
            "Find `/w` `*.rs`",
            "search",
        ),
        (
            "Grep",
            json!({ "pattern": "x", "-i": true, "-A": 2, "glob": "*.rs" }),
            "grep -i -A 2 --include=\"*.rs\" \"x\"",
            "search",
        ),
        (
            "WebFetch",
            json!({ "url": "https://e" }),
            "Fetch https://e",
            "fetch",
        ),
        ("WebSearch", json!({ "query": "q" }), "\"q\"", "fetch"),
        ("Task", json!({ "description": "Look" }), "Look", "think"),
        (
            "ExitPlanMode",
            json!({ "plan": "p" }),
            "Ready to code?",
            "switch_mode",
        ),
        ("mcp__docs__find", json!({}), "mcp__docs__find", "other"),
    ] {
        let info = info(name, &input);
        assert_eq!((&*info.title, info.kind), (title, kind));
    }
}

#[test]
fn edits_have_diffs_and_locations() {
    let edit = json!({ "file_path": "/w/a", "old_string": "x", "new_string": "y" });
    let diff = |old: Value, new: &str| json!({ "type": "diff", "path": "/w/a", "oldText": old, "newText": new });
    let shown = info("Edit", &edit);
    assert_eq!(
        (shown.content, shown.locations),
        (vec![diff(json!("x"), "y")], vec![json!({ "path": "/w/a" })])
    );
    let write = info("Write", &json!({ "file_path": "/w/a", "content": "c" }));
    assert_eq!(write.content, [diff(Value::Null, "c")]);
    let many = json!({ "file_path": "/w/a", "edits": [{ "old_string": "", "new_string": "n" }, { "old_string": "o" }] });
    assert_eq!(
        info("MultiEdit", &many).content,
        [diff(Value::Null, "n"), diff(json!("o"), "")]
    );
}

#[test]
fn results_keep_their_blocks() {
    let text = |text: &str| text_content(text);
    assert_eq!(
        result_content("Bash", &json!("out\n"), false),
        Some(vec![text("```console\nout\n```")])
    );
    assert_eq!(
        result_content("Bash", &json!("bad"), true),
        Some(vec![text("```\nbad\n```")])
    );
    assert_eq!(
        result_content("Read", &json!("a\n```x\n"), false),
        Some(vec![text("````\na\n```x\n````")])
    );
    assert_eq!(result_content("Edit", &json!("done"), false), None);
    assert_eq!(
        result_content("Edit", &json!("failed"), true),
        Some(vec![text("```\nfailed\n```")])
    );
    assert_eq!(result_content("X", &json!(""), false), None);
    let blocks = json!([
        { "type": "text", "text": "t" }, { "type": "tool_reference", "tool_name": "N" }, { "type": "new" },
        { "type": "image", "source": { "type": "base64", "data": "AA==", "media_type": "image/png" } },
    ]);
    assert_eq!(
        result_content("X", &blocks, false),
        Some(vec![
            text("t"),
            text("Tool: N"),
            text(r#"{"type":"new"}"#),
            json!({ "type": "content", "content": { "type": "image", "data": "AA==", "mimeType": "image/png" } }),
        ])
    );
}
