//! Owns what is known of the functions and modules that an application has added to a connection:
//! their names, and what it has promised of them.

use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::AuthAction;

use crate::traits::Traits;

/// What an application promises of a function.
///
/// A promise that is not kept costs a needless `Conflict` in an interactive transaction, never a
/// wrong commit. SQLite itself relies on it where a function is part of an index or of a generated
/// column, and keeps wrong values there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    is_deterministic: bool,
    is_for_untrusted: bool,
}

impl Function {
    /// It gives the same for the same arguments, always, and does nothing else: it may be used in
    /// interactive transactions, indexes and generated columns.
    pub const DETERMINISTIC: Function =
        Function { is_deterministic: true, is_for_untrusted: false };

    /// It may give something else each time. Interactive transactions refuse statements that call
    /// it, because they are run again at commit.
    pub const VOLATILE: Function = Function { is_deterministic: false, is_for_untrusted: false };

    /// The same, and untrusted SQL may call it, with whatever arguments: it tells no secrets, has
    /// no effects, and each call ends soon.
    #[must_use]
    pub const fn for_untrusted(self) -> Function {
        Function { is_for_untrusted: true, ..self }
    }

    pub(crate) fn flags(self, is_trusted: bool) -> FunctionFlags {
        let mut flags = FunctionFlags::SQLITE_UTF8;
        if self.is_deterministic {
            flags |= FunctionFlags::SQLITE_DETERMINISTIC;
        }
        if self.is_for_untrusted {
            flags |= FunctionFlags::SQLITE_INNOCUOUS;
        } else if !is_trusted {
            flags |= FunctionFlags::SQLITE_DIRECTONLY;
        }
        flags
    }
}

/// What an application has added to a connection, by name.
#[derive(Debug, Default)]
pub(crate) struct Added {
    functions: Vec<(Box<str>, Function)>,
    modules: Vec<Box<str>>,
}

impl Added {
    pub(crate) fn note_function(&mut self, name: &str, function: Function) {
        self.functions.push((name.into(), function));
    }

    pub(crate) fn note_module(&mut self, name: &str) {
        self.modules.push(name.into());
    }

    fn function(&self, name: &str) -> Option<Function> {
        let known = self.functions.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, function)| *function)
    }

    /// What a statement with this `action` is like for what the application has added: it has other
    /// inputs than pages, or may give something else when it is run again.
    pub(crate) fn traits(&self, action: &AuthAction<'_>) -> Traits {
        match action {
            AuthAction::Function { function_name } => match self.function(function_name) {
                Some(known) => {
                    Traits::BEYOND_PAGES | Traits::VOLATILE.when(!known.is_deterministic)
                }
                None => Traits::NONE,
            },
            AuthAction::Read { table_name, .. } => {
                let mut modules = self.modules.iter();
                let is_one = modules.any(|module| module.eq_ignore_ascii_case(table_name));
                Traits::BEYOND_PAGES.when(is_one)
            }
            _ => Traits::NONE,
        }
    }

    /// Says why `action` is refused to untrusted SQL, if it is.
    pub(crate) fn refusal(&self, action: &AuthAction<'_>) -> Option<String> {
        let AuthAction::Function { function_name } = action else { return None };
        let is_refused = !self.function(function_name)?.is_for_untrusted;
        is_refused.then(|| {
            format!(
                "{function_name}() is refused to untrusted SQL: the application has not added it \
                 with Function::for_untrusted"
            )
        })
    }
}
