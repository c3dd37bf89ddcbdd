//! `[roles.<name>]`: the operator's own roles.

use super::error::ConfigError;
use super::section::Field;
use base::types::{Scope, Scopes, is_name};

pub(super) fn read(name: &str, field: Field) -> Result<Scopes, ConfigError> {
    if !is_name(name) {
        let reason = "the name of a role has 1 to 64 letters, digits, '.', '_', '-' or '@'";
        return Err(field.invalid(reason));
    }
    let mut section = field.section()?;
    let scopes = section.take("scopes");
    let Some(scopes) = scopes else {
        return Err(section.missing("scopes"));
    };
    section.finish()?;
    let names: Vec<_> = Scope::ALL
        .iter()
        .map(|scope| (scope.name(), *scope))
        .collect();
    let scopes = scopes.each(|scope| scope.choice(&names))?;
    Ok(scopes.into_iter().collect())
}
