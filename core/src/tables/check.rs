//! Takes a value of one row, gives it when it can be, and otherwise the line that names row and column.

use std::sync::Arc;

use super::{Cause, bounds::LONGEST_TEXT};

/// What a value of one row must be, with the column named when it is not.
pub(super) struct RowCheck {
    pub row: usize,
}

impl RowCheck {
    pub(super) fn fault(&self, problem: String) -> Cause {
        // Counted from 1, as a person does.
        Cause::Row { row: self.row + 1, problem }
    }

    pub(super) fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, Cause> {
        value.ok_or_else(|| self.fault(format!("{name} is null")))
    }

    /// A text that the row will have.
    pub(super) fn text<'t>(&self, name: &str, value: &'t Arc<str>) -> Result<&'t Arc<str>, Cause> {
        match value.len() {
            0..=LONGEST_TEXT => Ok(value),
            length => Err(self.fault(format!("{name} has {length} bytes, more than {LONGEST_TEXT}"))),
        }
    }

    pub(super) fn size(&self, name: &str, value: Option<i64>) -> Result<usize, Cause> {
        let value = self.required(name, value)?;
        usize::try_from(value)
            .ok()
            .filter(|size| *size > 0)
            .ok_or_else(|| self.fault(format!("{name} is {value}, it must be at least 1")))
    }

    pub(super) fn count(&self, name: &str, value: Option<i64>) -> Result<u64, Cause> {
        let value = self.required(name, value)?;
        u64::try_from(value).map_err(|_| self.fault(format!("{name} is {value}, it must be at least 0")))
    }

    /// Errors and times: never NaN, never negative. Infinity may be: a relative error can overflow.
    pub(super) fn not_negative(&self, name: &str, value: Option<f64>) -> Result<Option<f64>, Cause> {
        match value {
            Some(value) if value.is_nan() || value < 0.0 => {
                Err(self.fault(format!("{name} is {value}, it must be at least 0")))
            }
            value => Ok(value),
        }
    }

    #[cfg(feature = "web")]
    pub(super) fn all_not_negative(&self, name: &str, values: Vec<f64>) -> Result<Vec<f64>, Cause> {
        values.iter().try_for_each(|value| self.not_negative(name, Some(*value)).map(drop))?;
        Ok(values)
    }
}
