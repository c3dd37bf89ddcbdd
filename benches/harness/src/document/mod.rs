//! Generates the parts of docs/internals/performance.md between markers from results.

mod chart;
mod curves;
mod machine;
mod tables;

use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::measure::Test;
use crate::results::Results;
use crate::targets::Target;

pub(crate) use machine::describe as describe_machine;
pub(crate) use tables::{GROWTH, gateway, goals, growth, targets};

/// The input of the tables besides the results.
pub(crate) struct Context<'a> {
    pub(crate) results: &'a Results,
    pub(crate) targets: &'a [Box<dyn Target>],
    pub(crate) machine: String,
}

/// Writes all parts for which results exist, and the charts next to the document.
pub(crate) fn write(path: &Path, context: &Context<'_>) -> Outcome {
    let mut text =
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let machine = &context.machine;
    if context
        .results
        .lines
        .iter()
        .any(|line| line.test != Test::Growth)
    {
        text = replaced(&text, "machine", machine)?;
        text = replaced(&text, "goals", &goals(context.results))?;
        text = replaced(&text, "targets", &targets(context))?;
        text = replaced(
            &text,
            "gateway",
            &gateway(context.results).unwrap_or_default(),
        )?;
        fs::write(path.with_extension("svg"), chart::draw(context))?;
    }
    // Growth is measured separately, possibly on another machine.
    if let Some(growth) = growth(context.results) {
        text = replaced(&text, "growth", &format!("{machine}\n\n{growth}"))?;
        if let Some(curves) = curves::draw(context.results) {
            fs::write(path.with_file_name("performance-growth.svg"), curves)?;
        }
    }
    Ok(fs::write(path, text)?)
}

/// Replaces the part between the markers of this name.
fn replaced(text: &str, name: &str, part: &str) -> Outcome<String> {
    let begin = format!("<!-- measured: {name} -->\n");
    let end = format!("<!-- end: {name} -->");
    let missing = || format!("the document has no marks for {name}");
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", part.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_section_changes() {
        let text = "a\n<!-- measured: x -->\nold\n<!-- end: x -->\nb\n";
        let new = replaced(text, "x", "| new |\n").unwrap();
        assert_eq!(
            new,
            "a\n<!-- measured: x -->\n\n| new |\n\n<!-- end: x -->\nb\n"
        );
        assert_eq!(replaced(&new, "x", "| new |\n").unwrap(), new);
        assert!(replaced(text, "y", "").is_err());
    }
}
