//! Rows of tables. A row names its table and its columns once; the code that reads, inserts and
//! replaces it is generated from that.

use crate::Result;
use crate::columns::{Column, Columns, Written};
use crate::sql::{Row, Transaction, Value, params};

/// A row of a table. The macro `row!` implements it.
pub(crate) trait Stored: Sized {
    const TABLE: &'static str;
    /// The columns in the order of the table. Several columns of one field are in one text.
    const COLUMNS: &'static [&'static str];

    fn read(columns: &mut Columns<'_>) -> Result<Self>;

    fn put<'a>(&'a self, values: &mut Vec<Written<'a>>) -> Result<()>;

    fn of(row: &Row<'_>) -> Result<Self> {
        Self::read(&mut Columns::new(row))
    }

    /// A statement that selects rows. `which` has the conditions, the order and the limit.
    fn select(which: &str) -> String {
        format!("SELECT {} FROM {} {which}", Self::COLUMNS.join(", "), Self::TABLE)
    }
}

/// Implements [`Stored`] for a struct: `row! { "table" => pub struct Name { … } }`. A field has the
/// column of its name, or the columns that it names: `pub field: Type = "one, two"`. A row that is
/// only read may have expressions there. A row with secrets names the fields that its `Debug`
/// shows: `row! { "table" shows id => …`.
macro_rules! row {
    ($table:literal $(shows $($shown:ident),+)? => $(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $kind:ty $(= $columns:expr)?,)*
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $kind,)*
        }

        impl $crate::rows::stored::Stored for $name {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [&'static str] =
                &[$($crate::rows::stored::column!($field $($columns)?)),*];

            fn read(
                columns: &mut $crate::columns::Columns<'_>,
            ) -> $crate::Result<Self> {
                Ok($name { $($field: $crate::rows::stored::Field::read(columns)?),* })
            }

            fn put<'a>(
                &'a self,
                values: &mut Vec<$crate::columns::Written<'a>>,
            ) -> $crate::Result<()> {
                $($crate::rows::stored::Field::put(&self.$field, values)?;)*
                Ok(())
            }
        }

        $(impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($shown), &self.$shown))+
                    .finish_non_exhaustive()
            }
        })?
    };
}
pub(crate) use row;

/// Defines a struct of two columns. In an `Option`, both are NULL together. The option has the
/// struct itself, or what is named before it: `pair! { Box<Kind>: pub struct Kind { … } }`.
macro_rules! pair {
    ($(#[$meta:meta])* pub struct $kind:ident $rest:tt) => {
        $crate::rows::stored::pair! { $kind: $(#[$meta])* pub struct $kind $rest }
    };
    ($held:ty: $(#[$meta:meta])* pub struct $kind:ident {
        pub $one:ident: $of_one:ty,
        pub $two:ident: $of_two:ty,
    }) => {
        $(#[$meta])*
        pub struct $kind {
            pub $one: $of_one,
            pub $two: $of_two,
        }

        impl $crate::rows::stored::Field for Option<$held> {
            fn read(
                columns: &mut $crate::columns::Columns<'_>,
            ) -> $crate::Result<Self> {
                let both = (columns.maybe()?, columns.maybe()?);
                Ok(both.0.zip(both.1).map(|($one, $two)| $kind { $one, $two }.into()))
            }

            fn put<'a>(
                &'a self,
                values: &mut Vec<$crate::columns::Written<'a>>,
            ) -> $crate::Result<()> {
                let (one, two) = self.as_ref().map(|pair| (&pair.$one, &pair.$two)).unzip();
                values.push($crate::columns::Written::of(one));
                values.push($crate::columns::Written::of(two));
                Ok(())
            }
        }
    };
}
pub(crate) use pair;

macro_rules! column {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $columns:expr) => {
        $columns
    };
}
pub(crate) use column;

/// A field of a row, which has one or more columns.
pub(crate) trait Field: Sized {
    fn read(columns: &mut Columns<'_>) -> Result<Self>;

    fn put<'a>(&'a self, values: &mut Vec<Written<'a>>) -> Result<()>;
}

impl<T: Column> Field for T {
    fn read(columns: &mut Columns<'_>) -> Result<Self> {
        columns.get()
    }

    fn put<'a>(&'a self, values: &mut Vec<Written<'a>>) -> Result<()> {
        values.push(Column::put(self)?);
        Ok(())
    }
}

impl<T: Column> Field for Option<T> {
    fn read(columns: &mut Columns<'_>) -> Result<Self> {
        columns.maybe()
    }

    fn put<'a>(&'a self, values: &mut Vec<Written<'a>>) -> Result<()> {
        values.push(self.as_ref().map_or(Ok(Written::Value(Value::Null)), Column::put)?);
        Ok(())
    }
}

pub(crate) fn insert<T: Stored>(transaction: &Transaction<'_>, row: &T) -> Result<()> {
    write(transaction, row, |columns| {
        let places: Vec<String> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
        let (columns, places) = (columns.join(", "), places.join(", "));
        format!("INSERT INTO {} ({columns}) VALUES ({places})", T::TABLE)
    })
}

/// Replaces the row of the same id, which is the first column. When the row was last used may have
/// been noted since it was read, and stays.
pub(crate) fn update<T: Stored>(transaction: &Transaction<'_>, row: &T) -> Result<()> {
    write(transaction, row, |columns| {
        let columns = columns.iter().zip(1..).skip(1);
        let set = columns.map(|(name, at)| match *name {
            "last_used_at" => format!("{name} = coalesce({name}, ?{at})"),
            _ => format!("{name} = ?{at}"),
        });
        let set: Vec<String> = set.collect();
        format!("UPDATE {} SET {} WHERE id = ?1", T::TABLE, set.join(", "))
    })
}

fn write<T: Stored>(
    transaction: &Transaction<'_>,
    row: &T,
    statement: impl FnOnce(&[&str]) -> String,
) -> Result<()> {
    let columns: Vec<&str> = T::COLUMNS.iter().flat_map(|names| names.split(", ")).collect();
    let mut values = Vec::with_capacity(columns.len());
    row.put(&mut values)?;
    let values: Vec<Value<'_>> = values.iter().map(Written::value).collect();
    transaction.execute(&statement(&columns), &values).map(drop)
}

pub(crate) fn find<T: Stored>(transaction: &Transaction<'_>, id: &str) -> Result<Option<T>> {
    transaction.row(&T::select("WHERE id = ?1"), &params![id], T::of)
}
