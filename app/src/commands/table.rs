//! One line of the table of actions, and the macro that writes a group of them.

use egui::{Key, KeyboardShortcut, Modifiers};

/// What an action is called, what it does, and its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActionEntry {
    pub text: &'static str,
    pub tooltip: &'static str,
    pub shortcut: Option<KeyboardShortcut>,
}

pub(super) const NO_KEY: Option<KeyboardShortcut> = None;

pub(super) const fn key(key: Key) -> Option<KeyboardShortcut> {
    Some(KeyboardShortcut::new(Modifiers::NONE, key))
}

pub(super) const fn shift(key: Key) -> Option<KeyboardShortcut> {
    Some(KeyboardShortcut::new(Modifiers::SHIFT, key))
}

pub(super) const fn ctrl(key: Key) -> Option<KeyboardShortcut> {
    Some(KeyboardShortcut::new(Modifiers::COMMAND, key))
}

pub(super) const fn ctrl_shift(key: Key) -> Option<KeyboardShortcut> {
    Some(KeyboardShortcut::new(Modifiers::COMMAND.plus(Modifiers::SHIFT), key))
}

/// A group of actions: an enum whose variants carry their line of the table, so that none can be
/// forgotten in a list.
macro_rules! actions {
    ($(#[$doc:meta])* $name:ident { $($variant:ident: $text:expr, $tooltip:expr, $shortcut:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As the code calls it: what ids are made of.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }

            pub fn entry(self) -> $crate::commands::table::ActionEntry {
                match self {
                    $(Self::$variant => $crate::commands::table::ActionEntry {
                        text: $text,
                        tooltip: $tooltip,
                        shortcut: $shortcut,
                    },)*
                }
            }
        }
    };
}
pub(super) use actions;
