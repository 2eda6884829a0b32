"""Names of conda's packages beside those of the package index: authored, of what environments commonly list.

What is in none of these is not guessed at: the index may have something else under the name.
"""

from __future__ import annotations

import re

__all__ = ["FOREIGN", "OTHER_NAMES", "SAME_NAMES"]

FOREIGN = frozenset(
    re.findall(
        r"\S+",
        """
alsa-lib arrow-cpp asttokens-bin atk blas blosc bzip2 c-ares ca-certificates cairo cmake compilers curl dbus
expat ffmpeg fftw flatbuffers fontconfig freetype fribidi gdal-bin geos gettext git glib gmp gnutls graphite2
graphviz gsl gst-plugins gstreamer gtk2 gtk3 harfbuzz hdf4 hdf5 icu intel-openmp jpeg jq keyutils krb5 lame
lcms2 lerc lz4-c m4 make mkl mkl-service mkl_fft mkl_random mpc mpfr mpi mpich ncurses nettle ninja-base
nodejs nomkl nspr nss openblas openh264 openjpeg openmpi openssl p11-kit pandoc pango pcre pcre2 perl pixman
pkg-config proj pthread pthread-stubs python_abi qt qt-main r-base re2 readline snappy sqlite tbb
tensorflow-base tensorflow-mkl tk tzdata unixodbc vim wget x264 x265 xorg xz yaml zeromq zip zlib zsh zstd
""",
    )
)
"""No packages of Python, or ones that the index has another thing under the name of."""
OTHER_NAMES = {
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python",
    "py-opencv": "opencv-python",
    "py-xgboost": "xgboost",
    "pytables": "tables",
    "python-flatbuffers": "flatbuffers",
    "python-graphviz": "graphviz",
    "pytorch": "torch",
    "redis-py": "redis",
    "ruamel_yaml": "ruamel.yaml",
    "seaborn-base": "seaborn",
    "typing_extensions": "typing-extensions",
}
"""conda's name → the index's."""
SAME_NAMES = frozenset(
    re.findall(
        r"\S+",
        """
absl-py aiohttp albumentations altair anyio argon2-cffi arrow astropy astunparse attrs audioread
beautifulsoup4 black bleach bokeh boto3 botocore cachetools catboost certifi cffi charset-normalizer click
cloudpickle colorama configargparse contourpy coverage cryptography cycler cython dask datasets decorator
defusedxml dill distributed docutils einops fastapi filelock flake8 flask fonttools fsspec gast gensim
google-auth google-auth-oauthlib google-pasta grpcio gspread gunicorn gym gymnasium h5netcdf h5py holoviews
httpx huggingface_hub hydra-core hypothesis idna imageio imbalanced-learn importlib-metadata ipykernel ipython
ipywidgets isort jedi jinja2 joblib jsonschema jupyter jupyter_client jupyter_core jupyterlab jupytext keras
keras-applications keras-preprocessing kiwisolver librosa lightgbm llvmlite loguru lxml markdown markupsafe
matplotlib mlflow more-itertools mypy natsort nbconvert nbformat nbval netcdf4 networkx nibabel nltk notebook
numba numexpr numpy oauthlib omegaconf openpyxl opt_einsum optuna orjson packaging pandas papermill patsy
pexpect pillow plotly plotnine pooch prometheus_client prompt-toolkit protobuf psutil psycopg2 pyarrow pyasn1
pycocotools pycparser pydantic pydicom pydot pygments pyjwt pylint pymongo pyparsing pyproj pyserial pytest
pytest-cov pytest-xdist python-dateutil python-dotenv pytz pywavelets pyyaml pyzmq rasterio regex requests
requests-oauthlib rich ruff sacremoses scikit-image scikit-learn scikit-optimize scipy seaborn sentencepiece
sentry-sdk setuptools shap shapely simpleitk six soundfile soupsieve spacy sphinx sqlalchemy statsmodels sympy
tabulate tensorboard tensorboard-data-server tensorboardx tensorflow-addons tensorflow-datasets
tensorflow-estimator tensorflow-hub tensorflow-probability termcolor threadpoolctl tifffile tokenizers toml
tomli tornado tqdm traitlets transformers typeguard typer typing-extensions tzlocal umap-learn urllib3 uvicorn
wandb watchdog werkzeug wheel wrapt xarray xgboost xlrd xlsxwriter yapf zipp
""",
    )
)
