//! The manual pages weir(1) and weir.ini(5), from the command line's own table and that of the settings.

use roff::{Inline, Roff, bold, italic, roman};
use weir::config::registry::{GROUPS, LISTS, Section, Setting, Status};

use crate::reference::{about, default, takes};

pub fn program() -> Result<Vec<u8>, String> {
    let command = weir::cli::command();
    let manual = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    let parts = [
        clap_mangen::Man::render_title,
        clap_mangen::Man::render_name_section,
        clap_mangen::Man::render_synopsis_section,
        clap_mangen::Man::render_description_section,
        clap_mangen::Man::render_options_section,
    ];
    parts.iter().try_for_each(|part| part(&manual, &mut page)).map_err(|error| error.to_string())?;
    let mut more = Roff::new();
    // In this page: there are no others for them.
    section(&mut more, "COMMANDS");
    for own in command.get_subcommands() {
        let about = own.get_about().map(ToString::to_string).unwrap_or_default();
        more.control("TP", []).text([bold(own.get_name())]).text([roman(about)]);
    }
    section(&mut more, "SIGNALS");
    for (signals, what) in [
        ("HUP", "All files are read again; if one is wrong, the old settings stay."),
        ("TERM", "No new clients; ends when those that are here have left."),
        (
            "INT",
            "No new clients, and nobody gets a server any more; ends when all transactions have. A second one ends at once.",
        ),
        ("QUIT", "Ends at once."),
        ("USR1, USR2", "PAUSE and RESUME of the console."),
    ] {
        more.control("TP", []).text([bold(signals)]).text([roman(what)]);
    }
    section(&mut more, "EXIT STATUS");
    more.text([roman("0 at the end of a shutdown, and of a check without errors; 1 where something is wrong.")]);
    section(&mut more, "FILES");
    more.control("TP", [])
        .text([italic("/etc/weir/weir.ini")])
        .text([roman("The configuration of the packaged service.")]);
    section(&mut more, "SEE ALSO");
    more.text([bold("weir.ini"), roman("(5), "), bold("psql"), roman("(1)")]);
    page.extend(more.to_roff().into_bytes());
    Ok(page)
}

pub fn settings() -> String {
    let mut page = Roff::new();
    page.control("TH", ["weir.ini", "5", "", concat!("weir ", env!("CARGO_PKG_VERSION"))]);
    section(&mut page, "NAME");
    page.text([roman("weir.ini - configuration of the connection pooler weir")]);
    section(&mut page, "DESCRIPTION");
    page.text([roman(
        "The format is that of PgBouncer: sections in brackets, \"key = value\" to the end of the line, comments on lines of their own behind ; or #, \
         and %include FILE. The last of two equal keys counts. Switches take 0 or 1, times are seconds.",
    )]);
    section(&mut page, "SECTION [pgbouncer]");
    for (title, settings) in GROUPS {
        page.control("SS", [*title]);
        entries(&mut page, settings);
    }
    for (list, settings) in LISTS {
        section(&mut page, &format!("SECTION [{}]", list.name()));
        page.text(marked(about(*list)));
        entries(&mut page, settings);
    }
    section(&mut page, "SEE ALSO");
    page.text([bold("weir"), roman("(1)")]);
    page.to_roff()
}

fn section(page: &mut Roff, title: &str) {
    page.control("SH", [title]);
}

fn entries(page: &mut Roff, settings: &[Setting]) {
    for setting in settings {
        page.control("TP", []).text([bold(setting.name)]).text(marked(setting.doc));
        let mut facts = format!("Takes {}.", takes(setting));
        if setting.section == Section::Pgbouncer {
            let when = if setting.reloadable { "" } else { " Changed at a start only." };
            facts.push_str(&format!(" Default: {}.{when}", default(setting)));
        }
        match setting.status {
            Status::Supported => {}
            Status::NoEffect(why) => facts.push_str(&format!(" Has no effect: {why}.")),
        }
        page.control("IP", []).text(marked(&facts));
    }
}

/// The settings' Markdown: words in backticks, and links of which the text stays.
fn marked(text: &str) -> Vec<Inline> {
    let mut parts = Vec::new();
    for (number, part) in text.split('`').enumerate() {
        let part = without_links(part);
        parts.push(if number % 2 == 0 { roman(part) } else { bold(part) });
    }
    parts
}

fn without_links(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, (words, behind))) =
        rest.split_once('[').and_then(|(before, link)| Some((before, link.split_once("](")?)))
    {
        plain.extend([before, words]);
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_plain_words() {
        assert_eq!(without_links("see [hba.md](hba.md), or [1]."), "see hba.md, or [1].");
        assert_eq!(marked("a `b` c"), [roman("a "), bold("b"), roman(" c")]);
    }

    #[test]
    fn every_setting_is_in_the_manual() {
        let page = settings();
        for setting in GROUPS.iter().flat_map(|(_, settings)| *settings) {
            assert!(page.contains(&setting.name.replace('-', "\\-")), "{}", setting.name);
        }
    }
}
