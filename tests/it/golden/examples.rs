//! One example or more of each kind, as the schema spells it.

/// Updates by their kinds, of v1 and of v2.
pub(crate) const UPDATES: &[&str] = &[
    r#"{"sessionUpdate":"user_message_chunk","messageId":"u1","content":{"type":"text","text":"hi"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"text","text":"a","annotations":{"audience":["user"],"priority":0.5}}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"image","data":"aGk=","mimeType":"image/png","uri":"file:///a.png"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"audio","data":"aGk=","mimeType":"audio/wav"}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"resource_link","uri":"file:///a","name":"a","size":3}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"resource","resource":{"uri":"file:///a","text":"t"}}}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"a1","content":{"type":"resource","resource":{"uri":"file:///a","blob":"aGk="}}}"#,
    r#"{"sessionUpdate":"agent_thought_chunk","messageId":"t1","content":{"type":"text","text":"hm"}}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":"c:1","title":"Edit","kind":"edit","status":"pending","locations":[{"path":"/w/a","line":3}],"rawInput":{"a":1}}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"c:1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ok"}},{"type":"terminal","terminalId":"t1"}],"rawOutput":{}}"#,
    r#"{"sessionUpdate":"tool_call_update","toolCallId":"c:1","content":[{"type":"diff","path":"/w/a","oldText":"a","newText":"b"}]}"#,
    r#"{"sessionUpdate":"plan","entries":[{"content":"First","priority":"high","status":"in_progress"}]}"#,
    r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p1","entries":[{"content":"First","priority":"low","status":"pending"}]}}"#,
    r#"{"sessionUpdate":"plan_update","plan":{"type":"file","planId":"p2","uri":"file:///plan.md"}}"#,
    r##"{"sessionUpdate":"plan_update","plan":{"type":"markdown","planId":"p3","content":"# Plan"}}"##,
    r#"{"sessionUpdate":"plan_removed","planId":"p1"}"#,
    r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"web","description":"Look","input":{"hint":"what"}}]}"#,
    r#"{"sessionUpdate":"current_mode_update","currentModeId":"code"}"#,
    r#"{"sessionUpdate":"config_option_update","configOptions":[{"id":"m","name":"Model","type":"select","currentValue":"a","options":[{"value":"a","name":"A"}]},{"id":"w","name":"Web","type":"boolean","currentValue":true}]}"#,
    r#"{"sessionUpdate":"session_info_update","title":"Title","updatedAt":"2026-11-21T22:15:03Z"}"#,
    r#"{"sessionUpdate":"usage_update","used":10,"size":100,"cost":{"amount":0.25,"currency":"USD"}}"#,
    r#"{"sessionUpdate":"notice","severity":"warning","title":"Low","description":"on tokens"}"#,
    r#"{"sessionUpdate":"compaction_update","compactionId":"k","status":"completed","summary":[{"type":"text","text":"s"}],"error":null}"#,
    r#"{"sessionUpdate":"compaction_summary_chunk","compactionId":"k","content":{"type":"text","text":"s"}}"#,
    r#"{"sessionUpdate":"subagent_update","sessionId":"child","title":"Look","capabilities":{"cancel":{}},"state":{"state":"running"},"cwd":"/w"}"#,
    r#"{"sessionUpdate":"session_message","messageId":"m1","senderSessionId":"parent","recipientSessionId":"child","content":[{"type":"text","text":"go"}]}"#,
    r#"{"sessionUpdate":"session_message_chunk","messageId":"m1","content":{"type":"text","text":"on"}}"#,
];

/// Updates that only v2 has.
pub(crate) const V2_UPDATES: &[&str] = &[
    r#"{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"hi"}]}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"a1","content":[{"type":"text","text":"hello"}]}"#,
    r#"{"sessionUpdate":"agent_thought","messageId":"t1","content":null}"#,
    r#"{"sessionUpdate":"state_update","state":"running"}"#,
    r#"{"sessionUpdate":"tool_call_content_chunk","toolCallId":"c","content":{"type":"content","content":{"type":"text","text":"a"}}}"#,
    r#"{"sessionUpdate":"terminal_update","terminalId":"t","command":"ls","output":{"data":"aGk="},"exitStatus":{"exitCode":0}}"#,
    r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"t","data":"aGk="}"#,
];

/// Requests of agents: the method, its params without the session's id, and an answer.
pub(super) const REQUESTS: &[(&str, &str, &str)] = &[
    (
        "session/request_permission",
        r#"{"sessionId":"$SESSION","toolCall":{"toolCallId":"c1","title":"Edit","kind":"edit"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}"#,
        r#"{"outcome":{"outcome":"selected","optionId":"y"}}"#,
    ),
    (
        "elicitation/create",
        r#"{"sessionId":"$SESSION","mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}"#,
        r#"{"action":"accept","content":{"name":"Ada"}}"#,
    ),
    (
        "elicitation/create",
        r#"{"sessionId":"$SESSION","mode":"url","message":"Go","elicitationId":"e1","url":"https://example.com/"}"#,
        r#"{"action":"decline"}"#,
    ),
    (
        "fs/read_text_file",
        r#"{"sessionId":"$SESSION","path":"/w/a","line":1,"limit":2}"#,
        r#"{"content":"text"}"#,
    ),
    (
        "fs/write_text_file",
        r#"{"sessionId":"$SESSION","path":"/w/a","content":"text"}"#,
        "{}",
    ),
    (
        "terminal/create",
        r#"{"sessionId":"$SESSION","command":"ls","args":["-l"],"env":[{"name":"A","value":"b"}],"cwd":"/w","outputByteLimit":10}"#,
        r#"{"terminalId":"t1"}"#,
    ),
    (
        "terminal/output",
        r#"{"sessionId":"$SESSION","terminalId":"t1"}"#,
        r#"{"output":"o","truncated":false,"exitStatus":{"exitCode":0}}"#,
    ),
    (
        "terminal/wait_for_exit",
        r#"{"sessionId":"$SESSION","terminalId":"t1"}"#,
        r#"{"exitCode":0}"#,
    ),
    (
        "terminal/kill",
        r#"{"sessionId":"$SESSION","terminalId":"t1"}"#,
        "{}",
    ),
    (
        "terminal/release",
        r#"{"sessionId":"$SESSION","terminalId":"t1"}"#,
        "{}",
    ),
    (
        "mcp/message",
        r#"{"sessionId":"$SESSION","serverId":"s","requestId":"q","method":"tools/list","params":{}}"#,
        r#"{"result":{"tools":[]}}"#,
    ),
    (
        "_vendor/ask",
        r#"{"sessionId":"$SESSION","question":[1]}"#,
        r#"{"answer":[2]}"#,
    ),
];

/// Notifications of agents beside `session/update`: the method and its params.
pub(super) const NOTIFICATIONS: &[(&str, &str)] = &[
    (
        "auth/status_update",
        r#"{"state":"authenticated","accounts":[]}"#,
    ),
    ("_vendor/note", r#"{"sessionId":"$SESSION","note":{"a":1}}"#),
];

/// Blocks of prompts.
pub(super) const BLOCKS: &[&str] = &[
    r#"{"type":"text","text":"hi","annotations":{"priority":1.0}}"#,
    r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#,
    r#"{"type":"audio","data":"aGk=","mimeType":"audio/wav"}"#,
    r#"{"type":"resource_link","uri":"file:///a","name":"a"}"#,
    r#"{"type":"resource","resource":{"uri":"file:///a","text":"t"}}"#,
];
