//! The tool calls of a turn. Early agents omit ids, and some send each call and result twice: as an `agent/update` and as
//! `agent/toolCall` or `agent/toolResult`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::content::{snake_case, text_content, tool_content};
use crate::translate::message::{Budget, LineError, Members, Object, missing};
use wire::acp::{to_raw, tool_kind, update as kind};

/// The maximum number of tool calls of a turn that results can refer to.
const MAX_TOOLS: usize = 1024;
/// The maximum size of their ids and names in bytes.
const MAX_BYTES: usize = 256 << 10;

/// The spelling of a message about a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Update,
    Method,
}

#[derive(Debug)]
struct Tool {
    id: String,
    name: String,
    called: Source,
    result: Option<Source>,
    has_kind: bool,
}

#[derive(Debug)]
pub(super) struct Tools {
    all: Vec<Tool>,
    budget: Budget<MAX_BYTES>,
    /// The prefix of the ids that the translation creates.
    prefix: String,
    created: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    New(String),
    Known(String),
    /// The message repeats one from the other source.
    Repeated,
}

impl Found {
    /// The id of the call and the kind of its update. `None` for a repetition.
    pub(super) fn update(self) -> Option<(String, &'static str)> {
        match self {
            Self::New(id) => Some((id, kind::TOOL_CALL)),
            Self::Known(id) => Some((id, kind::TOOL_CALL_UPDATE)),
            Self::Repeated => None,
        }
    }
}

impl Tools {
    pub(super) fn new(prefix: String) -> Self {
        Self {
            all: Vec::new(),
            budget: Budget::default(),
            prefix,
            created: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.budget.release_all();
    }

    pub(super) fn new_id(&mut self) -> String {
        self.created += 1;
        format!("{}-{}", self.prefix, self.created)
    }

    fn insert(
        &mut self,
        fields: &ToolFields<'_>,
        called: Source,
        result: Option<Source>,
    ) -> String {
        let id = match &fields.id {
            Some(id) => id.to_string(),
            None => self.new_id(),
        };
        let name = fields.name.as_deref().unwrap_or_default();
        if self.all.len() < MAX_TOOLS && self.budget.reserve(id.len() + name.len()) {
            self.all.push(Tool {
                id: id.clone(),
                name: name.to_owned(),
                called,
                result,
                has_kind: fields.kind.is_some(),
            });
        }
        id
    }

    /// Finds or adds the call of a message that announces one.
    pub(super) fn call(&mut self, fields: &ToolFields<'_>, source: Source) -> Found {
        let name = fields.name.as_deref().unwrap_or_default();
        let known = match &fields.id {
            Some(id) => self.all.iter().find(|tool| tool.id == **id),
            // Without an id, only the other source can speak of the same call.
            None => self
                .all
                .iter()
                .find(|tool| tool.called != source && tool.name == name && tool.result.is_none()),
        };
        if let Some(known) = known {
            return if known.called == source {
                Found::Known(known.id.clone())
            } else {
                Found::Repeated
            };
        }
        Found::New(self.insert(fields, source, None))
    }

    /// Finds or adds the call of a result.
    pub(super) fn result(&mut self, fields: &ToolFields<'_>, source: Source) -> Found {
        let name = fields.name.as_deref();
        let fits = |tool: &&mut Tool| match &fields.id {
            Some(id) => tool.id == **id,
            None => name.is_none_or(|name| tool.name == name),
        };
        let mut fitting: Vec<&mut Tool> = self.all.iter_mut().filter(fits).collect();
        if let Some(open) = fitting.iter_mut().find(|tool| tool.result.is_none()) {
            open.result = Some(source);
            return Found::Known(open.id.clone());
        }
        match fitting.pop() {
            Some(last) if last.result.is_some_and(|first| first != source) => Found::Repeated,
            Some(last) if fields.id.is_some() => Found::Known(last.id.clone()),
            _ => Found::New(self.insert(fields, source, Some(source))),
        }
    }

    /// The only call without a result, for a permission request that names none. A call with a kind is not used, because
    /// permissions are granted by kind.
    pub(super) fn only_open(&self) -> Option<&str> {
        let mut open = self.all.iter().filter(|tool| tool.result.is_none());
        let only = open.next().filter(|tool| !tool.has_kind)?;
        open.next().is_none().then_some(&*only.id)
    }
}

/// The members of a message about a tool, in all their spellings.
#[derive(Debug, Default)]
pub(super) struct ToolFields<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) title: Option<Cow<'a, str>>,
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) input: Option<&'a RawValue>,
    pub(super) output: Option<&'a RawValue>,
    pub(super) failed: bool,
}

const IDS: [&str; 7] = [
    "toolCallId",
    "tool_call_id",
    "toolUseId",
    "tool_use_id",
    "callId",
    "call_id",
    "id",
];
const NAMES: [&str; 4] = ["name", "toolName", "tool_name", "tool"];
const INPUTS: [&str; 7] = [
    "rawInput",
    "input",
    "arguments",
    "args",
    "parameters",
    "params",
    "toolInput",
];
const OUTPUTS: [&str; 6] = ["rawOutput", "output", "result", "content", "text", "error"];

impl<'a> ToolFields<'a> {
    /// Reads the members of these objects. The first object with a member decides.
    pub(super) fn read(objects: &[&Object<'a>]) -> Self {
        let text = |names: &[&str]| {
            let object_text = |object: &&Object<'a>| {
                let mut texts = names.iter().filter_map(|name| object.text(name));
                texts.find(|text| !text.is_empty())
            };
            objects.iter().find_map(object_text)
        };
        let value = |names: &[&str]| {
            let mut objects = objects.iter();
            objects.find_map(|object| names.iter().find_map(|name| object.get(name)))
        };
        // A kind is never guessed from a name, because permissions are granted by kind.
        let kind = text(&["kind"]).filter(|kind| tool_kind::ALL.contains(&&**kind));
        let is = |name: &str, value: &str| {
            let mut found = objects.iter().filter_map(|object| object.get(name));
            found.any(|found| found.get() == value)
        };
        let status = text(&["status"]).map(|status| snake_case(&status));
        let failed = is("success", "false")
            || is("isError", "true")
            || is("is_error", "true")
            || matches!(status.as_deref(), Some("failed" | "error" | "failure"))
            || value(&["error"]).is_some_and(|error| !matches!(error.get(), "false" | "\"\""));
        Self {
            id: text(&IDS),
            name: text(&NAMES),
            title: text(&["title"]),
            kind,
            input: value(&INPUTS),
            output: value(&OUTPUTS),
            failed,
        }
    }
}

const REQUEST: &str = "session/request_permission";
const OPTION_KINDS: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];
/// Words of options that reject.
const REJECTING: [&str; 15] = [
    "reject", "deny", "denied", "no", "not", "cancel", "decline", "refuse", "disallow", "block",
    "abort", "stop", "never", "skip", "don't",
];
/// Words of options that stay in effect.
const LASTING: [&str; 7] = [
    "always", "never", "remember", "session", "forever", "all", "every",
];
/// Words of options that allow.
const ALLOWING: [&str; 11] = [
    "allow", "approve", "accept", "yes", "ok", "proceed", "continue", "permit", "grant", "confirm",
    "once",
];

/// The params of `session/request_permission` of ACP.
pub(super) fn permission_request(
    params: &RawValue,
    session_id: &str,
    tools: &mut Tools,
) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse(REQUEST, params)?;
    let options = params.required_array("options")?.into_iter().map(option);
    let options = options.collect::<Result<Vec<_>, _>>()?;
    let kept = params.iter();
    let kept = kept.filter(|(name, _)| matches!(*name, "_meta" | "sessionId"));
    let mut request: Members<'_> = kept.collect();
    if params.text("sessionId").is_none() {
        request.set("sessionId", to_raw(&session_id));
    }
    let named = params.object("toolCall");
    request.set("toolCall", tool_call(&params, named.as_ref(), tools));
    request.set("options", to_raw(&options));
    Ok(to_raw(&request))
}

/// The tool call that needs the permission. Without one, the title and the message describe it.
fn tool_call(params: &Object<'_>, named: Option<&Object<'_>>, tools: &mut Tools) -> Box<RawValue> {
    let mut call: Members<'_> = named.into_iter().flat_map(Object::iter).collect();
    let id = named.and_then(|named| named.text("toolCallId"));
    let id = id.or_else(|| params.text("toolCallId"));
    let id = id.map(Cow::into_owned);
    let id = id.or_else(|| tools.only_open().map(ToOwned::to_owned));
    call.set("toolCallId", to_raw(&id.unwrap_or_else(|| tools.new_id())));
    let message = params.text("message");
    let message = message.or_else(|| params.text("description"));
    if named.is_none_or(|named| named.get("title").is_none()) {
        let title = params.text("title").or_else(|| message.clone());
        call.set("title", to_raw(title.as_deref().unwrap_or("Permission")));
    }
    let content = match named.and_then(|named| named.get("content")) {
        Some(content) => tool_content(content),
        None => message.map(|message| text_content(&message)),
    };
    call.set_some("content", content);
    to_raw(&call)
}

/// An option with the members of ACP. An option can be a bare text.
fn option(raw: &RawValue) -> Result<Box<RawValue>, LineError> {
    let bare: Option<String> = serde_json::from_str(raw.get()).ok();
    let object = match bare {
        Some(_) => None,
        None => Some(Object::parse("options", raw)?),
    };
    let text = |names: &[&str]| {
        let object = object.as_ref()?;
        let found = names.iter().find_map(|name| object.text(name));
        found.map(Cow::into_owned)
    };
    let id = text(&["optionId", "id"]).or(bare);
    let id = id.ok_or(missing("options", "optionId"))?;
    let name = text(&["name", "label", "title"]).unwrap_or_else(|| id.clone());
    let given = text(&["kind"]).filter(|kind| OPTION_KINDS.contains(&&**kind));
    let kind = given.unwrap_or_else(|| kind_of(&id, &name).to_owned());
    let mut option: Members<'_> = object.iter().flat_map(Object::iter).collect();
    option.remove("id");
    option.remove("label");
    option.set("optionId", to_raw(&id));
    option.set("name", to_raw(&name));
    option.set("kind", to_raw(&kind));
    Ok(to_raw(&option))
}

/// Derives the kind of an option without a kind from the words of its id and name. If no word is known, the kind is
/// `allow_always`: no policy of an operator selects this kind, so only a person can select the option.
fn kind_of(id: &str, name: &str) -> &'static str {
    let id = snake_case(id);
    if let Some(kind) = OPTION_KINDS.iter().find(|kind| **kind == id) {
        return kind;
    }
    let text = format!("{id} {}", snake_case(name));
    let words = text.split(|char: char| !char.is_alphanumeric() && char != '\'');
    let words: Vec<&str> = words.collect();
    let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
    match (has(&REJECTING), has(&LASTING), has(&ALLOWING)) {
        (true, true, _) => "reject_always",
        (true, false, _) => "reject_once",
        (false, false, true) => "allow_once",
        (false, ..) => "allow_always",
    }
}

#[cfg(test)]
mod tools_tests {
    use super::*;

    fn fields<'a>(id: Option<&'a str>, name: Option<&'a str>) -> ToolFields<'a> {
        ToolFields {
            id: id.map(Into::into),
            name: name.map(Into::into),
            ..ToolFields::default()
        }
    }

    #[test]
    fn calls_without_ids_are_paired_with_their_results_in_order() {
        let mut tools = Tools::new("t".to_owned());
        let read = fields(None, Some("read"));
        let none = fields(None, None);
        let new = |id: &str| Found::New(id.to_owned());
        let known = |id: &str| Found::Known(id.to_owned());
        assert_eq!(tools.call(&read, Source::Update), new("t-1"));
        assert_eq!(
            tools.call(&read, Source::Update),
            new("t-2"),
            "the same tool again"
        );
        assert_eq!(tools.result(&read, Source::Update), known("t-1"));
        assert_eq!(tools.result(&none, Source::Update), known("t-2"));
        assert_eq!(
            tools.result(&none, Source::Update),
            new("t-3"),
            "a result without a call"
        );
        tools.clear();
        assert_eq!(
            tools.call(&read, Source::Update),
            new("t-4"),
            "ids are not used again"
        );
    }

    #[test]
    fn call_and_result_from_both_sources_are_shown_once() {
        for id in [Some("c"), None] {
            let mut tools = Tools::new("t".to_owned());
            let call = fields(id, Some("read"));
            assert!(matches!(tools.call(&call, Source::Update), Found::New(_)));
            assert_eq!(tools.call(&call, Source::Method), Found::Repeated);
            assert!(matches!(
                tools.result(&call, Source::Method),
                Found::Known(_)
            ));
            assert_eq!(tools.result(&call, Source::Update), Found::Repeated);
        }
    }

    #[test]
    fn only_open_call_without_a_kind_is_the_subject_of_a_permission() {
        let mut tools = Tools::new("t".to_owned());
        assert_eq!(tools.only_open(), None);
        tools.call(&fields(Some("a"), None), Source::Update);
        assert_eq!(tools.only_open(), Some("a"));
        tools.call(&fields(Some("b"), None), Source::Update);
        assert_eq!(tools.only_open(), None);
        tools.clear();
        tools.call(
            &ToolFields {
                kind: Some("read".into()),
                ..fields(Some("a"), None)
            },
            Source::Update,
        );
        assert_eq!(tools.only_open(), None);
    }

    #[test]
    fn retained_tool_calls_are_bounded() {
        let mut tools = Tools::new("t".to_owned());
        for _ in 0..2 * MAX_TOOLS {
            tools.call(&fields(None, Some("n")), Source::Update);
        }
        assert_eq!(tools.all.len(), MAX_TOOLS);
        tools.clear();
        let long = "x".repeat(MAX_BYTES);
        for _ in 0..2 {
            assert!(matches!(
                tools.call(&fields(None, Some(&long)), Source::Update),
                Found::New(_)
            ));
        }
        assert!(
            tools.budget.used() <= MAX_BYTES && tools.all.len() <= 1,
            "{:?}",
            tools.budget
        );
    }
}

#[cfg(test)]
mod permission_tests {
    use super::*;

    fn translated(params: &str, tools: &mut Tools) -> Result<String, LineError> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        permission_request(&params, "s", tools).map(|request| request.get().to_owned())
    }

    fn tools() -> Tools {
        Tools::new("t".to_owned())
    }

    #[test]
    fn title_and_message_become_a_tool_call() {
        let params = r#"{"title":"Run SQL","message":"SELECT 1","options":[{"optionId":"allow_once","label":"Allow once"}]}"#;
        let expected = concat!(
            r#"{"sessionId":"s","toolCall":{"toolCallId":"t-1","title":"Run SQL","#,
            r#""content":[{"type":"content","content":{"type":"text","text":"SELECT 1"}}]},"#,
            r#""options":[{"optionId":"allow_once","name":"Allow once","kind":"allow_once"}]}"#
        );
        assert_eq!(translated(params, &mut tools()).unwrap(), expected);
    }

    #[test]
    fn permission_of_acp_keeps_its_members() {
        let params = concat!(
            r#"{"sessionId":"s","toolCall":{"toolCallId":"c","title":"T","kind":"edit","rawInput":{"n":1.10}},"#,
            r#""options":[{"optionId":"a","name":"A","kind":"allow_once","_meta":{"x":1}}]}"#
        );
        assert_eq!(translated(params, &mut tools()).unwrap(), params);
        let bare = r#"{"sessionId":"s","toolCall":{"toolCallId":"c","content":"out"},"title":"T","options":["yes"]}"#;
        let expected = concat!(
            r#"{"sessionId":"s","toolCall":{"toolCallId":"c","#,
            r#""content":[{"type":"content","content":{"type":"text","text":"out"}}],"title":"T"},"#,
            r#""options":[{"optionId":"yes","name":"yes","kind":"allow_once"}]}"#
        );
        assert_eq!(translated(bare, &mut tools()).unwrap(), expected);
    }

    #[test]
    fn kind_of_an_option_follows_from_its_words() {
        for (id, name, kind) in [
            ("allow_once", "", "allow_once"),
            ("allowAlways", "", "allow_always"),
            ("1", "Allow", "allow_once"),
            ("1", "Allow for this session", "allow_always"),
            ("deny", "Deny", "reject_once"),
            ("2", "No, keep it", "reject_once"),
            ("2", "Don't allow", "reject_once"),
            ("2", "Do not allow", "reject_once"),
            ("3", "Never allow this", "reject_always"),
            ("4", "Reject always", "reject_always"),
            ("5", "Launch", "allow_always"),
            ("note", "Note", "allow_always"),
        ] {
            assert_eq!(kind_of(id, name), kind, "{id} {name}");
        }
    }

    #[test]
    fn request_without_options_is_a_typed_error() {
        let missing = |object, member| LineError::Member { object, member };
        assert_eq!(
            translated(r#"{"title":"T"}"#, &mut tools()),
            Err(missing(REQUEST, "options"))
        );
        let error = translated(r#"{"options":[{"label":"Allow"}]}"#, &mut tools());
        assert_eq!(error, Err(missing("options", "optionId")));
    }
}
