"""What SQLAlchemy's suite may expect of SQLite, by sqlalchemy-libsql, from Monolite."""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

NOT_THERE = [
    # Monolite refuses temporary tables and ATTACH, and so schemas.
    "temporary_tables", "temp_table_reflection", "temp_table_reflect_indexes", "schemas",
    # SQLite gives no name to a constraint, and has no parentheses in a UNION.
    "implicitly_named_constraints",
    "parens_in_union_contained_select_w_limit_offset",
    "parens_in_union_contained_select_wo_limit_offset",
]
THERE = ["reflects_pk_names", "reflect_table_options"]


class Requirements(SuiteRequirements):
    pass


for names, are in ((NOT_THERE, exclusions.closed), (THERE, exclusions.open)):
    for name in names:
        setattr(Requirements, name, property(lambda self, are=are: are()))
