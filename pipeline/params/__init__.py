"""Settings of params.yaml as checked, frozen pydantic models."""

from pipeline.models.model import Model
from pipeline.params.own import (
    OWN,
    OwnArrays,
    OwnFeatures,
    OwnFiles,
    OwnImages,
    OwnPictures,
    OwnTable,
    OwnTexts,
)
from pipeline.params.reading import load, parse, use_code
from pipeline.params.schema import (
    Account,
    Data,
    Line,
    Plan,
    Public,
    Raw,
    Relevance,
    Row,
    Search,
    Source,
    Start,
    Text,
)
from pipeline.params.settings import PAPERS, PARAMS, Settings, pick
