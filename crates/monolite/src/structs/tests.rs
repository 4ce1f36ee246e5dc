//! Structs, tuples and values, there and back, and what is said when they do not fit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::*;
use crate::error::ErrorKind;
use crate::parameters::IntoParameters as _;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Open,
    Closed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Id(u32);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: Id,
    state: State,
    paid: bool,
    total: f64,
    note: Option<String>,
    letter: char,
}

fn row<T: DeserializeOwned>(sql: &str, order: Option<&Order>) -> Result<T> {
    let connection = rusqlite::Connection::open_in_memory()?;
    let mut statement = connection.prepare(sql)?;
    if let Some(order) = order {
        Parameters::from_struct(order)?.bind(&mut statement)?;
    }
    let mut rows = statement.raw_query();
    let row = rows.next()?.expect("it has a row");
    Ok(from_row(row)?)
}

fn order() -> Order {
    let (id, note) = (Id(7), Some("leave it".into()));
    Order { id, state: State::Closed, paid: true, total: 2.5, note, letter: 'ä' }
}

#[test]
fn a_struct_comes_back_as_it_was() {
    let sql = "SELECT :note AS note, @id AS id, $state AS state, :paid AS paid, :total AS total, \
               :letter AS letter, 'more' AS more";
    let closed = order();
    assert_eq!(row::<Order>(sql, Some(&closed)).unwrap(), closed);
    let open = Order { state: State::Open, note: None, paid: false, ..order() };
    assert_eq!(row::<Order>(sql, Some(&open)).unwrap(), open);
    let map: BTreeMap<String, Option<i64>> = row("SELECT 1 AS a, NULL AS b", None).unwrap();
    assert_eq!(map, BTreeMap::from([("a".into(), Some(1)), ("b".into(), None)]));
}

#[test]
fn tuples_and_single_values_are_taken_by_their_place() {
    assert_eq!(row::<(i64, String)>("SELECT 1, 'a'", None).unwrap(), (1, "a".into()));
    assert_eq!(row::<i64>("SELECT 1", None).unwrap(), 1);
    assert_eq!(row::<Id>("SELECT 1", None).unwrap(), Id(1));
    assert_eq!(row::<Option<f64>>("SELECT 1", None).unwrap(), Some(1.0));
    assert_eq!(row::<Option<f64>>("SELECT NULL", None).unwrap(), None);
    assert_eq!(row::<State>("SELECT 'open'", None).unwrap(), State::Open);
}

#[test]
fn what_does_not_fit_is_told_with_its_column() {
    for (sql, said) in [
        ("SELECT 'x' AS id", "column \"id\": invalid type: string \"x\", expected u32"),
        ("SELECT NULL AS id", "column \"id\": the value is NULL; make the field an Option"),
        ("SELECT -1 AS id", "column \"id\": invalid value: integer `-1`, expected u32"),
        ("SELECT 1 AS id, 'lost' AS state", "column \"state\": unknown variant `lost`"),
        ("SELECT 1 AS id, 'open' AS state, 2 AS paid", "column \"paid\": invalid type: integer"),
        ("SELECT 1 AS id, 'open' AS state", "the query has no column `paid`"),
    ] {
        let error = row::<Order>(sql, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let error = row::<i64>("SELECT 1, 2", None).unwrap_err().to_string();
    assert!(error.contains("one value is wanted, and the row has 2 columns"), "{error}");
    let error = row::<(i64, i64)>("SELECT 1", None).unwrap_err().to_string();
    assert!(error.contains("a tuple of 2 is wanted"), "{error}");
}

#[test]
fn what_cannot_be_in_a_column_is_no_parameter() {
    let nested = BTreeMap::from([("list", vec![1])]);
    let error = Parameters::from_struct(&nested).unwrap_err();
    assert!(error.to_string().contains("field \"list\": a column holds"), "{error}");
    let large = BTreeMap::from([("n", u64::MAX)]);
    let error = Parameters::from_struct(&large).unwrap_err().to_string();
    assert!(error.contains("field \"n\": 18446744073709551615 is larger"), "{error}");
    assert!(Parameters::from_struct(&5).is_err());
    assert!(Parameters::from_struct(&order()).unwrap().into_parameters().is_ok());
}

#[test]
fn an_outcome_is_the_value_that_was_stored_or_an_error_that_names_its_type() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Receipt {
        id: i64,
        note: Option<String>,
    }
    let first = Receipt { id: 7, note: None };
    let bytes = to_outcome(&first).unwrap();
    assert_eq!(bytes, br#"{"id":7,"note":null}"#);
    assert_eq!(from_outcome::<Receipt>(&bytes).unwrap(), first);
    let wrong = from_outcome::<Receipt>(b"paid").unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid);
    assert!(wrong.to_string().contains("Receipt"), "{wrong}");
    let unsayable = BTreeMap::from([((1, 2), 3)]);
    let refused = to_outcome(&unsayable).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}
