//! A plan as Markdown.

use serde_json::value::RawValue;

use super::content::{array, text};
use super::escape::{blockquote, code, inline};
use crate::acp::RawObject;

/// Renders the entries as a list, or the URI or text that replaces them. `None`: the plan is empty.
pub(super) fn plan_text(plan: &RawValue) -> Option<String> {
    let plan = RawObject::parse(plan)?;
    let entries = plan.get("entries").map(array).unwrap_or_default();
    let shown = if let Some(uri) = text(&plan, "uri") {
        code(&uri)
    } else if let Some(content) = text(&plan, "content") {
        blockquote(&content)
    } else {
        entries
            .into_iter()
            .filter_map(RawObject::parse)
            .map(|entry| line(&entry))
            .collect()
    };
    (!shown.is_empty()).then(|| format!("*Plan*\n\n{shown}"))
}

fn line(entry: &RawObject<'_>) -> String {
    let (mark, rest) = match text(entry, "status").as_deref() {
        Some("completed") => ("x", String::new()),
        Some("in_progress") => (" ", " *(in progress)*".to_owned()),
        Some("pending") | None => (" ", String::new()),
        Some(other) => (" ", format!(" *({})*", inline(other))),
    };
    format!(
        "- [{mark}] {}{rest}\n",
        inline(&text(entry, "content").unwrap_or_default())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_form_renders() {
        let shown = |plan: &str| plan_text(serde_json::from_str(plan).unwrap());
        let entries = r#"{"entries":[{"content":"a*b","status":"completed"},{"content":"c","status":"in_progress"},
            {"content":"d"},7,{"content":"e","status":"_new"}]}"#;
        assert_eq!(
            shown(entries).unwrap(),
            "*Plan*\n\n- [x] a\\*b\n- [ ] c *(in progress)*\n- [ ] d\n- [ ] e *(\\_new)*\n"
        );
        assert_eq!(
            shown(r#"{"type":"file","uri":"file:///p.md"}"#).unwrap(),
            "*Plan*\n\n`file:///p.md`"
        );
        assert_eq!(
            shown(r##"{"type":"markdown","content":"# P\nq"}"##).unwrap(),
            "*Plan*\n\n> # P\n> q\n"
        );
        for nothing in ["{}", r#"{"entries":[]}"#, "null", r#"{"entries":7}"#] {
            assert_eq!(shown(nothing), None, "{nothing}");
        }
    }
}
