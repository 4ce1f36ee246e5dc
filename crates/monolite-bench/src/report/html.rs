//! A report as one HTML file: no network, no script, charts as SVG inside.
//!
//! # Format
//! Landmarks, headings in order, a caption and header cells in every table, a title and a
//! description in every chart. A wide table scrolls in a region of its own that the keyboard
//! reaches, so that the page never scrolls sideways. Light or dark as the reader's system is; on
//! paper black on white, with no table cut that fits a page.

use super::chart::{Chart, draw};
use super::record::Record;
use super::render::Table;
use super::{matrix, pictures, summary, tables};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1f2937;--soft:#4b5563;--page:#fff;--line:#d1d5db;\
--band:#f3f4f6;--link:#1d4ed8}
@media (prefers-color-scheme:dark){:root{--ink:#e5e7eb;--soft:#9ca3af;--page:#111827;\
--line:#374151;--band:#1f2937;--link:#93c5fd}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:1rem/1.5 system-ui,sans-serif;\
overflow-wrap:break-word}
header,main,footer,nav{max-width:76rem;margin:0 auto;padding:0 1rem}
h1{line-height:1.2;margin:1.5rem 0 .5rem}
h2{margin:2.5rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--line)}
h3{margin:1.5rem 0 .25rem;font-size:1.05rem}
a{color:var(--link)}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;background:var(--page);padding:.5rem}
nav ul{padding:0;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,32rem),1fr));\
gap:1.5rem 2.5rem;align-items:start}
figure{margin:0}figcaption p{margin:.1rem 0 .5rem;color:var(--soft)}
.scroll{overflow-x:auto;border:1px solid var(--line);margin:.75rem 0}
.scroll:focus-visible,a:focus-visible,summary:focus-visible{outline:3px solid var(--link)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.5rem .6rem;font-weight:600}
caption span{display:inline-block;position:sticky;left:.6rem;max-width:calc(100vw - 4rem)}
th,td{padding:.3rem .6rem;text-align:right;white-space:nowrap;\
border-top:1px solid var(--line)}
th:first-child{text-align:left;font-weight:400;white-space:normal;min-width:9.5rem}
thead th{background:var(--band);font-weight:600;vertical-align:bottom}
thead th:first-child{font-weight:600}
pre{background:var(--band);padding:.75rem;white-space:pre-wrap;overflow-wrap:anywhere}
@media (max-width:30rem){h1{font-size:1.6rem}table{font-size:.8rem}th,td{padding:.3rem .4rem}
th:first-child{min-width:6.5rem}}
ul{padding-left:1.25rem}.notes{color:var(--soft);font-size:.9rem;margin:.25rem 0 1rem}
summary{cursor:pointer;padding:.5rem 0;font-weight:600}
.warning{border-left:.4rem solid #c2410c;padding:.5rem .75rem;background:var(--band)}
@media print{:root{--ink:#000;--soft:#333;--page:#fff;--line:#999;--band:#eee;--link:#000}
nav,.skip{display:none}.charts{grid-template-columns:1fr 1fr}
figure,tr{break-inside:avoid}h2,h3,caption{break-after:avoid}
.scroll{overflow:visible;border:0}body,table{font-size:9pt}
th,td{padding:.15rem .3rem;white-space:normal}}
";

/// Returns the report of these records.
pub fn page(records: &[Record]) -> String {
    let title = title(records);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                // Nothing is asked of the network, not even a picture for the tab.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(draw::STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the results" }
                header {
                    h1 { (title) }
                    p { "Every figure was measured on the machine that is named with it, in one \
                         run; ratios hold within that run." }
                }
                nav aria-label="Contents" { ul {
                    @for (number, record) in records.iter().enumerate() {
                        @for (key, name) in PARTS {
                            li { a href=(format!("#{key}-{number}")) {
                                @if records.len() > 1 { (record.suite) ": " }
                                (name)
                            } }
                        }
                    }
                } }
                main id="main" {
                    @for (number, record) in records.iter().enumerate() { (part(record, number)) }
                }
                footer {
                    p { "Made by " code { "monolite bench report" } " from the record alone." }
                }
            }
        }
    };
    page.into_string()
}

const PARTS: [(&str, &str); 4] =
    [("summary", "Summary"), ("charts", "Charts"), ("tables", "All tables"), ("run", "The run")];

fn title(records: &[Record]) -> String {
    match records {
        [record] => format!("monolite bench {}, {}", record.suite, record.date),
        _ => format!("monolite bench, {} runs", records.len()),
    }
}

fn part(record: &Record, number: usize) -> Markup {
    let id = |key: &str| format!("{key}-{number}");
    let name = |name: &str| match number {
        0 => name.to_owned(),
        _ => format!("{name}: {}, run {}", record.suite, number + 1),
    };
    let summary =
        if record.suite == "tps" { summary::table(record) } else { matrix::summary(record) };
    let charts = pictures::all(record);
    html! {
        section aria-labelledby=(id("summary")) {
            h2 id=(id("summary")) { (name("Summary")) }
            (table(&summary))
            @if !record.setup.left_out.is_empty() {
                p { "Left to " code { "--full" } ": " (record.setup.left_out.join(", ")) "." }
            }
        }
        section aria-labelledby=(id("charts")) {
            h2 id=(id("charts")) { (name("Charts")) }
            div.charts {
                @for picture in charts { (figure(picture, number)) }
            }
        }
        section aria-labelledby=(id("tables")) {
            h2 id=(id("tables")) { (name("All tables")) }
            @for each in tables::all(record) { (table(&each)) }
        }
        section aria-labelledby=(id("run")) {
            h2 id=(id("run")) { (name("The run")) }
            (run(record))
        }
    }
}

fn figure(mut chart: Chart, number: usize) -> Markup {
    chart.id = format!("{}-{number}", chart.id);
    html! {
        figure {
            figcaption {
                h3 { (chart.title) }
                p { (chart.meaning) "." }
            }
            (PreEscaped(draw::svg(&chart)))
        }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        div.scroll role="region" tabindex="0" aria-label=(table.title) {
            table {
                caption { span { (table.title) } }
                thead { tr { @for (column, name) in table.header.iter().enumerate() {
                    // A header cell without words would be announced as nothing.
                    @if name.is_empty() && column == 0 { th scope="col" { "candidate" } }
                    @else { th scope="col" { (name) } }
                } } }
                tbody { @for row in &table.rows { tr {
                    @for (column, cell) in row.iter().enumerate() {
                        @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                    }
                } } }
            }
        }
        @if !table.notes.is_empty() {
            ul.notes { @for note in &table.notes { li { (note) } } }
        }
    }
}

fn run(record: &Record) -> Markup {
    let setup = &record.setup;
    html! {
        h3 { "To reproduce it" }
        pre { code { (record.command) } }
        h3 { "What was measured, on what" }
        ul { @for line in tables::preamble(record) { li { (line) } } }
        (details("Settings of the engine", &setup.engine))
        (details("Pragmas of raw SQLite", &setup.raw_pragmas))
        (details("Settings of PostgreSQL", &setup.postgres_settings))
        (details("Checks of the work, all passed", &record.verifications.iter().map(|check| {
            format!("{}: {} ({})", check.after, check.check, check.accounts)
        }).collect::<Vec<_>>()))
    }
}

fn details(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            details {
                summary { (title) }
                ul { @for line in lines { li { (line) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::files::tests::golden_record;

    #[test]
    fn a_page_is_one_file_that_asks_the_network_for_nothing() {
        let page = page(&[golden_record(), golden_record()]);
        for outside in ["<script", "<img", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        // The one address is the name of SVG's vocabulary.
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
    }

    #[test]
    fn ids_are_unique_however_many_records_there_are() {
        let page = page(&[golden_record(), golden_record()]);
        let mut ids: Vec<&str> =
            page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    #[test]
    fn every_table_has_a_caption_and_every_chart_a_description() {
        let page = page(&[golden_record()]);
        assert_eq!(page.matches("<table>").count(), page.matches("<caption>").count());
        let charts = page.matches("<svg").count();
        assert!(charts >= 5, "{charts}");
        assert_eq!(charts, page.matches("<desc").count());
        assert!(!page.contains("<th scope=\"col\"></th>"));
    }

    #[test]
    fn what_a_record_says_is_text_and_not_markup() {
        let mut record = golden_record();
        record.machine.cpu = "<b>fast</b>".into();
        let page = page(&[record]);
        assert!(page.contains("&lt;b&gt;fast") && !page.contains("<b>fast"));
    }
}
