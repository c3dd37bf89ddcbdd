//! The tool calls of a turn. Early agents omit ids, and some send each call and result twice: as an `agent/update` and as
//! `agent/toolCall` or `agent/toolResult`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::content::snake_case;
use crate::acp::update as kind;
use crate::translate::budget::Budget;
use crate::translate::object::Object;

/// The maximum number of tool calls of a turn that results can refer to.
const MAX_TOOLS: usize = 1024;
/// The maximum size of their ids and names in bytes.
const MAX_BYTES: usize = 256 << 10;

/// The spelling of a message about a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// An update of the session.
    Update,
    /// A method of its own.
    Method,
}

#[derive(Debug)]
struct Tool {
    id: String,
    name: String,
    called: Source,
    /// The source of the first result.
    result: Option<Source>,
    /// The agent named its kind.
    has_kind: bool,
}

/// The tool calls of the running turn.
#[derive(Debug)]
pub(super) struct Tools {
    all: Vec<Tool>,
    budget: Budget,
    /// The prefix of the ids that the translation creates.
    prefix: String,
    created: u64,
}

/// The tool call of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The call was not reported before.
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
    pub(super) const fn new(prefix: String) -> Self {
        Self {
            all: Vec::new(),
            budget: Budget::new(MAX_BYTES),
            prefix,
            created: 0,
        }
    }

    /// Forgets the calls at the end of a turn.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.budget.release_all();
    }

    pub(super) fn new_id(&mut self) -> String {
        self.created += 1;
        format!("{}-{}", self.prefix, self.created)
    }

    fn insert(&mut self, tool: Tool) {
        let bytes = tool.id.len() + tool.name.len();
        if self.all.len() < MAX_TOOLS && self.budget.reserve(bytes) {
            self.all.push(tool);
        }
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
        let id = fields
            .id
            .as_ref()
            .map_or_else(|| self.new_id(), |id| id.clone().into_owned());
        let has_kind = fields.kind.is_some();
        self.insert(Tool {
            id: id.clone(),
            name: name.to_owned(),
            called: source,
            result: None,
            has_kind,
        });
        Found::New(id)
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
            Some(last) if last.result.is_some_and(|former| former != source) => Found::Repeated,
            Some(last) if fields.id.is_some() => Found::Known(last.id.clone()),
            _ => {
                let id = fields
                    .id
                    .as_ref()
                    .map_or_else(|| self.new_id(), |id| id.clone().into_owned());
                let name = name.unwrap_or_default().to_owned();
                let (called, has_kind) = (source, fields.kind.is_some());
                self.insert(Tool {
                    id: id.clone(),
                    name,
                    called,
                    result: Some(source),
                    has_kind,
                });
                Found::New(id)
            }
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
/// The kinds of ACP. A kind is never guessed from a name, because permissions are granted by kind.
const KINDS: [&str; 10] = [
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
];

impl<'a> ToolFields<'a> {
    /// Reads the members of these objects. The first object with a member decides.
    pub(super) fn read(objects: &[&Object<'a>]) -> Self {
        let text = |names: &[&str]| {
            let mut of = objects
                .iter()
                .flat_map(|object| names.iter().map(move |name| object.text(name)));
            of.find_map(|text| text.filter(|text| !text.is_empty()))
        };
        let value = |names: &[&str]| {
            objects
                .iter()
                .find_map(|object| names.iter().find_map(|name| object.get(name)))
        };
        let kind = text(&["kind"]).filter(|kind| KINDS.contains(&&**kind));
        let is = |name: &str, value: &str| {
            objects
                .iter()
                .any(|object| object.get(name).is_some_and(|found| found.get() == value))
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

#[cfg(test)]
mod tests {
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
        let (read, none) = (fields(None, Some("read")), fields(None, None));
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
