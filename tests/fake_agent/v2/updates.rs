//! Updates of v2 in the form of an agent.

use super::steps::Prompt;

pub(crate) const TOOL_SUBJECT: &str =
    r#"{"type":"tool_call","toolCall":{"toolCallId":"call:1","title":"Change","kind":"edit"}}"#;
pub(crate) const COMMAND_SUBJECT: &str = r#"{"type":"command","command":"make","cwd":"/w"}"#;

pub(crate) const TOOL_BEGUN: &str = r#"{"sessionUpdate":"tool_call_update","toolCallId":"call:1","title":"Long","status":"in_progress","capabilities":{"cancel":{}}}"#;
pub(crate) const TOOL_OVER: &str = r#"{"sessionUpdate":"tool_call_update","toolCallId":"call:1","status":"cancelled","capabilities":null}"#;
pub(crate) const TERMINAL_BEGUN: &str = r#"{"sessionUpdate":"terminal_update","terminalId":"term 1","command":"sleep","capabilities":{"cancel":{}}}"#;
pub(crate) const TERMINAL_OVER: &str = r#"{"sessionUpdate":"terminal_update","terminalId":"term 1","exitStatus":{"signal":"SIGTERM"},"capabilities":null}"#;

const UPSERTS: [&str; 7] = [
    r#"{"sessionUpdate":"agent_thought","messageId":"t","content":[{"type":"text","text":"Hm"}]}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"Hel"}}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"Hello"}]}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":" you"}}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"m","_meta":{"x":1.10}}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"gone","content":[{"type":"text","text":"never"}]}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"gone","content":null}"#,
];

const TOOLS: [&str; 4] = [
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"Build","kind":"execute","status":"in_progress","rawInput":{"a":1.10},"locations":[{"path":"/w/a"}]}"#,
    r#"{"sessionUpdate":"tool_call_content_chunk","toolCallId":"c","content":{"type":"content","content":{"type":"text","text":"one"}}}"#,
    r#"{"sessionUpdate":"tool_call_content_chunk","toolCallId":"c","content":{"type":"diff","changes":[{"operation":"modify","path":"/w/a"}],"patch":{"format":"git_patch","text":"-a\n+b\n"}}}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawInput":null}"#,
];

const TERMINAL: [&str; 4] = [
    r#"{"sessionUpdate":"terminal_update","terminalId":"t","command":"make","cwd":"/w","output":{"data":"b25lCg=="}}"#,
    r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"t","data":"dHc="}"#,
    r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"t","data":"bwo="}"#,
    r#"{"sessionUpdate":"terminal_update","terminalId":"t","exitStatus":{"exitCode":0}}"#,
];

const STATE_OF_THINGS: [&str; 3] = [
    r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[{"content":"First","priority":"high","status":"pending"}]}}"#,
    r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"type":"command","name":"test","description":"Tests"}]}"#,
    r#"{"sessionUpdate":"session_info_update","title":"Fake"}"#,
];

/// Sends the updates of a step. Returns false if the step does not exist.
pub(crate) fn play(prompt: &Prompt, name: &str) -> bool {
    let updates: &[&str] = match name {
        "upserts" => &UPSERTS,
        "tools" => &TOOLS,
        "terminal" => &TERMINAL,
        "state-of-things" => &STATE_OF_THINGS,
        _ => return false,
    };
    for update in updates {
        prompt.record(update);
    }
    true
}
