//! The draw has the published shape.
use super::*;

const ROWS: u64 = 10_000_000;

fn mean_of_bulk(draw: &Draw) -> f64 {
    // The bulk: all but the steep end of the curve, one draw in 2,000, which spreads over the
    // whole range and would drown the mean.
    let ids: Vec<i64> = (0..200_000).map(|i| draw.id(f64::from(i) / 200_100.0 * 0.9995)).collect();
    ids.iter().sum::<i64>() as f64 / ids.len() as f64
}

#[test]
fn range_of_a_billion_gives_a_mean_id_of_thirty_three_thousand() {
    let mean = mean_of_bulk(&Draw::new(Skew::Pareto, ROWS));
    assert!((32_000.0..34_000.0).contains(&mean), "{mean}");
}

#[test]
fn range_of_the_table_would_make_the_hot_set_a_hundred_times_smaller() {
    let mean = mean_of_bulk(&Draw::with_range(Skew::Pareto, ROWS, ROWS));
    assert!((320.0..340.0).contains(&mean), "{mean}");
}

#[test]
fn two_million_draws_touch_about_154_thousand_accounts() {
    let transfers = draw_transfers(&Draw::new(Skew::Pareto, ROWS), 1, 1_000_000);
    let hot = hot_set(&transfers, &[131.0, 131.0]);
    assert_eq!(hot.draws, 2_000_000);
    assert!((140_000..170_000).contains(&hot.distinct_ids), "{hot:?}");
    assert!((6_000..7_000).contains(&hot.distinct_leaf_pages), "{hot:?}");
}

#[test]
fn every_draw_lands_in_the_table() {
    for rows in [1, 7, 1_000, ROWS] {
        for skew in [Skew::Pareto, Skew::Uniform] {
            let draw = Draw::new(skew, rows);
            for x in [0.0, 1e-12, 0.5, 0.9995, 0.999_999_9, 1.0 - f64::EPSILON, 1.0] {
                let id = draw.id(x.min(if skew == Skew::Uniform { 0.999 } else { 1.0 }));
                assert!((0..rows as i64).contains(&id), "{skew} {rows} {x} {id}");
            }
        }
    }
}

#[test]
fn same_seed_draws_the_same_work() {
    let draw = Draw::new(Skew::Pareto, ROWS);
    assert_eq!(draw_transfers(&draw, 7, 100), draw_transfers(&draw, 7, 100));
    assert_ne!(draw_transfers(&draw, 7, 100), draw_transfers(&draw, 8, 100));
}
